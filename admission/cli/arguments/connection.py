"""Connection of a command to Sluice's API: its flags, the choice of endpoint and credentials, hints for errors."""

from __future__ import annotations

import functools
import os
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from admission.cli.arguments.suggestions import similar_name
from admission.cli.errors import CommandError
from admission.model.text import visible

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from admission.client import Sluice

DEFAULT_SERVER = "http://127.0.0.1:8080"
"""The server if there is a token, but no server and no kubeconfig is given."""
_TOKEN_VARIABLES = ("SLUICE_TOKEN", "SLUICE_ADMIN_TOKEN")

NAMESPACE_HINT = "if it is in another namespace, add -n NAMESPACE"


_ROLE_HINTS: Final = (
    (
        r'cannot (get|list|watch) resource "(?!audits)[^"]*" .* at the cluster scope',
        "the ClusterRole sluice-viewer allows it: ask an admin",
    ),
    (r"at the cluster scope", "it requires the ClusterRole sluice-admin: ask an admin"),
    (
        r'cannot patch resource "workloads" .* in the namespace',
        "it requires the ClusterRole sluice-admin; to change position or queue, the ClusterRole sluice-team-lead there",
    ),
)
"""(pattern of an RBAC refusal, hint which role grants the request); the first pattern that is found counts."""


@dataclass(frozen=True, slots=True)
class ApiConnection:
    """Values of the flags that locate Sluice's API, environment variables not yet considered; None: not given."""

    server: str | None = None
    token_file: Path | None = None
    ca: Path | None = None
    kubeconfig: str | None = None
    context: str | None = None


def print_warning(text: str) -> None:
    """Print a warning of the server to standard error, as kubectl does.

    Warnings "would ..." of a dry run are skipped: its response has them in full.
    """
    if text.startswith("would "):
        return
    click.echo(f"warning: {visible(text)}", err=True)


class _ConnectionOption(click.Option):
    """Click option of the connection: one line in the help of a command stands for all of them."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the line of the help for `--server`, None for the others."""
        if self.name != "server":
            return None
        return "--server, --context ...", f"Where Sluice is: see {ctx.find_root().command_path} options."

    def full_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return flag and description."""
        found = super().get_help_record(ctx)
        assert found is not None, self.name
        return found


def connection_records() -> list[tuple[str, str]]:
    """Return flag and description of each option of the connection."""
    command = click.command()(connection_options(lambda **_: None))
    ctx = click.Context(command)
    return [each.full_record(ctx) for each in command.params if isinstance(each, _ConnectionOption)]


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that locate Sluice's API to a command, which receives them as `connection`."""

    @click.option(
        "--server",
        cls=_ConnectionOption,
        metavar="URL",
        help=f"URL of the Sluice API.  [env: SLUICE_SERVER; default: {DEFAULT_SERVER}]",
    )
    @click.option(
        "--token-file",
        cls=_ConnectionOption,
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="File with the bearer token.  [default: the token in SLUICE_TOKEN or SLUICE_ADMIN_TOKEN]",
    )
    @click.option(
        "--ca",
        cls=_ConnectionOption,
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="PEM file with the CA certificate of the server.  [env: SLUICE_CA]",
    )
    @click.option(
        "--kubeconfig",
        cls=_ConnectionOption,
        metavar="FILE",
        help="Kubeconfig file; connect through the API server of its cluster, also if SLUICE_SERVER is set.  "
        "[env: KUBECONFIG, unless SLUICE_SERVER or a token is set]",
    )
    @click.option(
        "--context",
        cls=_ConnectionOption,
        metavar="NAME",
        help="Kubeconfig context to use, also if SLUICE_SERVER is set.  [default: the current context]",
    )
    @functools.wraps(command)
    def with_connection(
        *args: Any,
        server: str | None,
        token_file: Path | None,
        ca: Path | None,
        kubeconfig: str | None,
        context: str | None,
        **kwargs: Any,
    ) -> Any:
        if (kubeconfig or context) and (server or token_file):
            raise click.UsageError("--server and --token-file cannot be used together with --kubeconfig and --context")
        return command(*args, connection=ApiConnection(server, token_file, ca, kubeconfig, context), **kwargs)

    return with_connection


def has_no_namespace_flag() -> bool:
    """Return whether the running command has the option `-n`, and was not given it."""
    context = click.get_current_context(silent=True)
    return context is not None and context.params.get("namespace", "") is None


def has_all_namespaces_flag() -> bool:
    """Return whether the running command was given `-A`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.params.get("all_namespaces"))


def _role_hint(refusal: str) -> str:
    """Return which role of `deploy/rbac/users.yaml` grants what the cluster's RBAC has refused; empty: unknown."""
    for pattern, hint in _ROLE_HINTS:
        if re.search(pattern, refusal):
            return hint
    return ""


@asynccontextmanager
async def connect(connection: ApiConnection, *, warn: Callable[[str], None] = print_warning) -> AsyncIterator[Sluice]:
    """Context manager: a client of Sluice's API. Raises CommandError if neither flags nor the environment locate it.

    Forbidden and NotFound that are raised in the block become CommandErrors with a hint, where there is one: the role
    that is required, the namespace to name, or the most similar name. One about the connection says if SLUICE_SERVER
    is not used.
    """
    from admission.client import BadAnswer, BadConnection, Forbidden, NotFound, Unauthorized, Unreachable

    printed: set[str] = set()

    def warn_once(text: str) -> None:
        if text not in printed:
            printed.add(text)
            warn(text)

    by_flag = connection.kubeconfig is not None or connection.context is not None
    async with _client(connection, warn_once) as sluice:
        try:
            yield sluice
        except (BadAnswer, BadConnection, Unauthorized, Unreachable) as error:
            if not by_flag or not os.environ.get("SLUICE_SERVER"):
                raise
            flag = "--kubeconfig" if connection.kubeconfig is not None else "--context"
            raise CommandError(f"{error}\nSLUICE_SERVER is not used, because {flag} is given") from error
        except Forbidden as error:
            if "at the cluster scope" in str(error) and has_all_namespaces_flag():
                raise CommandError(f"{error}; to see a single namespace, use -n NAMESPACE instead of -A") from error
            elsewhere = NAMESPACE_HINT if error.namespace and has_no_namespace_flag() else ""
            hint = _role_hint(str(error)) or elsewhere
            if not hint:
                raise
            raise CommandError(f"{error}; {hint}") from error
        except NotFound as error:
            hint = await similar_name(sluice, *error.about, fallback_namespace=error.namespace)
            if not hint:
                raise
            raise CommandError(f"{error}; {hint}") from error


def _client(connection: ApiConnection, warn: Callable[[str], None]) -> Sluice:
    """Return the client: flags take precedence over environment variables, and a server over the default kubeconfig."""
    from admission.client import Sluice

    if uses_kubeconfig(connection):
        return Sluice.from_kubeconfig(connection.kubeconfig, connection.context, warn=warn)
    server = connection.server or os.environ.get("SLUICE_SERVER")
    token = _token(connection.token_file)
    if not server and not token:
        raise CommandError(
            "no server is configured: set SLUICE_SERVER and SLUICE_TOKEN (or --server and --token-file), "
            "or connect through a cluster with --kubeconfig or --context"
        )
    if not token:
        raise CommandError("no token is configured: set SLUICE_TOKEN, or use --token-file FILE")
    ca = connection.ca or os.environ.get("SLUICE_CA") or None
    return Sluice(server or DEFAULT_SERVER, token=token, ca=ca, warn=warn)


def uses_kubeconfig(connection: ApiConnection) -> bool:
    """Whether Sluice is reached through the API server of its cluster. Raises CommandError."""
    if connection.kubeconfig is not None or connection.context is not None:
        return True
    server = connection.server or os.environ.get("SLUICE_SERVER")
    return not server and not _token(connection.token_file) and _has_kubeconfig()


def _has_kubeconfig() -> bool:
    where = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return any(Path(part).expanduser().exists() for part in where.split(os.pathsep) if part)


def _token(file: Path | None) -> str:
    """Return the token in the file, or without one from the environment; empty: none. Raises CommandError."""
    if file is None:
        return next((token for name in _TOKEN_VARIABLES if (token := os.environ.get(name, "").strip())), "")
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"the token file {file} cannot be read: {error}") from error
    if not token:
        raise CommandError(f"the token file {file} is empty")
    return token
