"""`sluice debug bundle`: the state of Sluice in one file for troubleshooting, without secrets."""

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

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.groups import CommandGroup
from admission.cli.errors import CommandError
from admission.cli.output.output_file import output_file
from admission.cli.output.printing import print_line
from admission.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import BinaryIO

    from admission.client import Sluice

_API: Final = "/apis/sluice.dev/v1"
_TEXTS: Final = {"readyz.txt": "/readyz", "metrics.txt": "/metrics", "statistics.json": "/debug/statistics"}
"""File in the bundle -> path whose response it contains."""
_TYPES: Final = (
    "clusterqueues",
    "cohorts",
    "localqueues",
    "resourceflavors",
    "workloadpriorityclasses",
    "admissionchecks",
    "provisioningrequestconfigs",
    "topologies",
    "budgets",
    "reservations",
    "drains",
    "userlimits",
    "pricebooks",
    "budgetrequests",
    "subscriptions",
    "workloads",
)
_MAX_AUDIT_RECORDS: Final = 200
"""Audit records to include; the newest ones."""
_MAX_OBJECTS: Final = 2000
"""Objects of each type to include, so that the file stays small in a large cluster."""


@click.group(cls=CommandGroup)
def debug() -> None:
    """Collect information for troubleshooting.

    \b
    Example:
      sluice debug bundle
    """


@debug.command()
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write.  [default: sluice-debug-TIME.tar.gz]",
)
@connection_options
def bundle(file: Path | None, connection: ApiConnection) -> None:
    """Write a file with the state and versions of Sluice.

    It contains queue objects, workloads with their reasons, the newest audit records,
    metrics and the response of /readyz, as far as you have permission to read them;
    errors.txt lists what could not be read. There are no tokens, passwords or Secrets in
    it, but there are names of Jobs, namespaces and users.

    \b
    Examples:
      sluice debug bundle
      sluice debug bundle --context prod --file incident.tar.gz
    """
    target = file or Path(time.strftime("sluice-debug-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime()))
    parts, errors = asyncio.run(_collect(connection))
    if not parts:
        raise CommandError(f"nothing could be read, and no file was written: {errors[0].partition(': ')[2]}")
    parts["versions.json"] = _versions()
    if errors:
        parts["errors.txt"] = "".join(f"{line}\n" for line in errors)
    with output_file(target) as out:
        _write(out, parts)
    for line in errors:
        print_line(f"left out: {line}")
    print_line(f"{target}: {len(parts)} files")


async def _collect(connection: ApiConnection) -> tuple[dict[str, str], list[str]]:
    """Return the contents of the files by name, and a message for each one that could not be read."""
    parts: dict[str, str] = {}
    errors: list[str] = []

    async def add(name: str, request: Callable[[], Awaitable[str]]) -> None:
        try:
            parts[name] = await request()
        except ClientError as error:
            errors.append(f"{name}: {error}")

    async with connect(connection) as sluice:
        for name, path in _TEXTS.items():
            await add(name, partial(sluice.text, path))
        for plural in _TYPES:
            await add(f"{plural}.json", partial(_list_as_json, sluice, plural, _MAX_OBJECTS))
        await add("auditrecords.json", partial(_list_as_json, sluice, "auditrecords", _MAX_AUDIT_RECORDS))
    return parts, errors


async def _list_as_json(sluice: Sluice, plural: str, limit: int) -> str:
    """Return the first `limit` objects of a type, in all namespaces, as JSON."""
    found = await sluice.request("GET", f"{_API}/{plural}", params={"limit": str(limit)})
    return json.dumps(found, indent=1)


def _versions() -> str:
    """Return the versions of Sluice, schema, Python, platform and all installed packages as JSON."""
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


def _write(out: BinaryIO, parts: dict[str, str]) -> None:
    """Write the files, by name, as a compressed tar archive."""
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in sorted(parts.items()):
            content = text.encode()
            entry = tarfile.TarInfo(f"sluice-debug/{name}")
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(content))
