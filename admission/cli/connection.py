"""Where the Sluice is that a command talks to, and what lets the command in."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from admission.cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_SERVER = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class Connection:
    """A server's URL and the token for it."""

    server: str
    token: str = field(repr=False)


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--server` and `--token-file`; the command gets a `connection`."""

    @click.option(
        "--server",
        envvar="SLUICE_SERVER",
        default=DEFAULT_SERVER,
        help=f"URL of the Sluice to talk to.  [env: SLUICE_SERVER; default: {DEFAULT_SERVER}]",
    )
    @click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        help="File with the token; without it, SLUICE_ADMIN_TOKEN is used.",
    )
    @functools.wraps(command)
    def with_connection(*args: Any, server: str, token_file: Path | None, **kwargs: Any) -> Any:
        return command(*args, connection=Connection(server, _token(token_file)), **kwargs)

    return with_connection


def _token(file: Path | None) -> str:
    if file is None:
        token, source = os.environ.get("SLUICE_ADMIN_TOKEN", ""), "SLUICE_ADMIN_TOKEN"
    else:
        try:
            token, source = file.read_text(), str(file)
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"the token file {file} cannot be read: {error}") from error
    token = token.strip()
    if not token:
        raise CommandError("there is no token: set SLUICE_ADMIN_TOKEN, or name a file by --token-file")
    if not token.isascii() or not token.isprintable():
        raise CommandError(f"the token in {source} has control or non-ASCII characters; check that it is the token")
    return token
