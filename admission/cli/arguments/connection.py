"""Which Sluice a command talks to, by which door, and what lets the command in."""

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
_TOKENS = ("SLUICE_TOKEN", "SLUICE_ADMIN_TOKEN")

NAMESPACE_HINT = "is it another namespace that you mean? Add -n NAMESPACE"


_ROLES: Final = (
    (r"cannot (get|list|watch) .* at the cluster scope", "the ClusterRole sluice-viewer allows it: ask an admin"),
    (r"at the cluster scope", "an admin may, who has the ClusterRole sluice-admin"),
    (
        r'cannot patch resource "workloads" .* in the namespace',
        "an admin may; of place and queue also who has the ClusterRole sluice-team-lead there",
    ),
)


@dataclass(frozen=True, slots=True)
class Connection:
    """The flags that say where Sluice is, before the environment is looked at; None: not given."""

    server: str | None = None
    token_file: Path | None = None
    ca: Path | None = None
    kubeconfig: str | None = None
    context: str | None = None


def print_warning(text: str) -> None:
    """On standard error, as kubectl does; but not what a dry run says twice, here and in full in its answer."""
    if text.startswith("would "):
        return
    click.echo(f"warning: {visible(text)}", err=True)


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags that say where Sluice is; the command gets a `connection`."""

    @click.option("--server", help=f"URL of the Sluice to talk to.  [env: SLUICE_SERVER; default: {DEFAULT_SERVER}]")
    @click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        help="File with the token; without it, SLUICE_TOKEN or SLUICE_ADMIN_TOKEN is used.",
    )
    @click.option(
        "--ca",
        type=click.Path(path_type=Path),
        help="PEM file with the authority of the server's certificate.  [env: SLUICE_CA]",
    )
    @click.option("--kubeconfig", help="Go through the API server of this kubeconfig.  [env: KUBECONFIG]")
    @click.option("--context", help="Go through the API server of this context of the kubeconfig.")
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
            raise click.UsageError("--server and --token-file do not go with --kubeconfig and --context")
        return command(*args, connection=Connection(server, token_file, ca, kubeconfig, context), **kwargs)

    return with_connection


def has_no_namespace_flag() -> bool:
    """Whether the command that runs could have been given -n, and was not."""
    context = click.get_current_context(silent=True)
    return context is not None and context.params.get("namespace", "") is None


def asks_all_namespaces() -> bool:
    """Whether the command that runs was given -A."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.params.get("all_namespaces"))


def _who_may(refusal: str) -> str:
    """Which role of `deploy/rbac/users.yaml` allows what the RBAC of the cluster refuses; empty: that is not known."""
    for pattern, who in _ROLES:
        if re.search(pattern, refusal):
            return who
    return ""


@asynccontextmanager
async def connect(connection: Connection, *, warn: Callable[[str], None] = print_warning) -> AsyncIterator[Sluice]:
    """The Sluice of `connection`, for the time of the block. Raises CommandError if nothing says where it is.

    What the block does not find is raised as CommandError with the name that may have been meant, where there is one.
    """
    from admission.client import Forbidden, NotFound

    told: set[str] = set()

    def warn_once(text: str) -> None:
        if text not in told:
            told.add(text)
            warn(text)

    async with _sluice(connection, warn_once) as sluice:
        try:
            yield sluice
        except Forbidden as error:
            if "at the cluster scope" in str(error) and asks_all_namespaces():
                raise CommandError(f"{error}; who may not see all namespaces names one: -n NAMESPACE") from error
            elsewhere = NAMESPACE_HINT if error.namespace and has_no_namespace_flag() else ""
            hint = _who_may(str(error)) or elsewhere
            if not hint:
                raise
            raise CommandError(f"{error}; {hint}") from error
        except NotFound as error:
            hint = await similar_name(sluice, *error.about, asked_in=error.namespace)
            if not hint:
                raise
            raise CommandError(f"{error}; {hint}") from error


def _sluice(connection: Connection, warn: Callable[[str], None]) -> Sluice:
    """What flags say goes before what the environment says, and a server before a kubeconfig."""
    from admission.client import Sluice

    if connection.kubeconfig is not None or connection.context is not None:
        return Sluice.from_kubeconfig(connection.kubeconfig, connection.context, warn=warn)
    server = connection.server or os.environ.get("SLUICE_SERVER")
    token = _token(connection.token_file)
    if not server and not token and _has_kubeconfig():
        return Sluice.from_kubeconfig(warn=warn)
    if not server and not token:
        raise CommandError(
            "nothing says where Sluice is: set SLUICE_SERVER and SLUICE_TOKEN (or --server and --token-file), "
            "or go through a cluster by --kubeconfig or --context"
        )
    if not token:
        raise CommandError("there is no token: set SLUICE_TOKEN, or name a file by --token-file")
    ca = connection.ca or os.environ.get("SLUICE_CA") or None
    return Sluice(server or DEFAULT_SERVER, token=token, ca=ca, warn=warn)


def _has_kubeconfig() -> bool:
    where = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return any(Path(part).expanduser().exists() for part in where.split(os.pathsep) if part)


def _token(file: Path | None) -> str:
    if file is None:
        return next((token for name in _TOKENS if (token := os.environ.get(name, "").strip())), "")
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"the token file {file} cannot be read: {error}") from error
    if not token:
        raise CommandError(f"the token file {file} is empty")
    return token
