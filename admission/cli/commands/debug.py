"""`sluice debug bundle`: what those who help need to know, in one file, without secrets."""

from __future__ import annotations

import asyncio
import io
import json
import platform
import sys
import tarfile
import time
from functools import partial
from importlib.metadata import distributions, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from admission.cli.arguments.connection import Connection, connect, connection_options
from admission.cli.arguments.groups import Group
from admission.cli.errors import CommandError
from admission.cli.output.printing import print_line
from admission.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.client import Sluice

_API: Final = "/apis/sluice.dev/v1"
_TEXTS: Final = {"readyz.txt": "/readyz", "metrics.txt": "/metrics", "statistics.json": "/debug/statistics"}
_OBJECTS: Final = (
    "clusterqueues",
    "cohorts",
    "localqueues",
    "resourceflavors",
    "workloadpriorityclasses",
    "admissionchecks",
    "subscriptions",
    "workloads",
)
_RECORDS: Final = 200
"""Audit records, the newest."""
_WORKLOADS: Final = 2000
"""Of each type, so that the file stays small in a large cluster."""


@click.group(cls=Group)
def debug() -> None:
    """Find out what is wrong.

    \b
    Example:
      sluice debug bundle
    """


@debug.command()
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What to write.  [default: sluice-debug-TIME.tar.gz]",
)
@connection_options
def bundle(file: Path | None, connection: Connection) -> None:
    """Write a file with the state of Sluice, its versions and what was decided lately.

    Queue objects, workloads with their reasons, the newest audit records, metrics and the
    answer of /readyz go in, as far as you may read them: what may not be read is named in
    errors.txt. There are no tokens, passwords or Secrets in it, but names of Jobs,
    namespaces and users.

    \b
    Examples:
      sluice debug bundle
      sluice debug bundle --context prod --file incident.tar.gz
    """
    target = file or Path(time.strftime("sluice-debug-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime()))
    parts, errors = asyncio.run(_collect(connection))
    if not parts:
        raise CommandError(f"nothing could be had, and no file is written: {errors[0].partition(': ')[2]}")
    parts["versions.json"] = _versions()
    if errors:
        parts["errors.txt"] = "".join(f"{line}\n" for line in errors)
    try:
        _write(target, parts)
    except OSError as error:
        raise CommandError(f"{target} cannot be written: {error.strerror}") from error
    for line in errors:
        print_line(f"left out: {line}")
    print_line(f"{target}: {len(parts)} files")


async def _collect(connection: Connection) -> tuple[dict[str, str], list[str]]:
    """Files by name, and what could not be had."""
    parts: dict[str, str] = {}
    errors: list[str] = []

    async def take(name: str, ask: Callable[[], Awaitable[str]]) -> None:
        try:
            parts[name] = await ask()
        except ClientError as error:
            errors.append(f"{name}: {error}")

    async with connect(connection) as sluice:
        for name, path in _TEXTS.items():
            await take(name, partial(sluice.text, path))
        for plural in _OBJECTS:
            await take(f"{plural}.json", partial(_document, sluice, plural, _WORKLOADS))
        await take("auditrecords.json", partial(_document, sluice, "auditrecords", _RECORDS))
    return parts, errors


async def _document(sluice: Sluice, plural: str, limit: int) -> str:
    found = await sluice.request("GET", f"{_API}/{plural}", params={"limit": str(limit)})
    return json.dumps(found, indent=1)


def _versions() -> str:
    from admission.store.database.tables import SCHEMA_VERSION

    found = sorted({f"{each.metadata['Name']} {each.version}" for each in distributions()})
    return json.dumps(
        {
            "sluice": version("sluice"),
            "schema": SCHEMA_VERSION,
            "python": sys.version,
            "platform": platform.platform(),
            "distributions": found,
        },
        indent=1,
    )


def _write(target: Path, parts: dict[str, str]) -> None:
    with tarfile.open(target, "w:gz") as archive:
        for name, text in sorted(parts.items()):
            content = text.encode()
            entry = tarfile.TarInfo(f"sluice-debug/{name}")
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(content))
    target.chmod(0o600)
