"""Object names from the server, for shell completion."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from admission.cli.arguments.connection import Connection, connect
from admission.cli.arguments.objects import namespace_for
from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.api.registry import Resource

_TIMEOUT = 2.0
"""Seconds after which no names are offered: the shell's prompt is blocked meanwhile."""
_MAX_NAMES = 1000
"""Names that are offered at most."""


def names_of(resource: Resource, parameters: Mapping[str, Any]) -> list[str]:
    """Return the names of objects of `resource`, requested with the flags of the command line.

    Empty if the request fails or takes longer than `_TIMEOUT`: completion prints no errors.
    """
    flags = {key: parameters.get(key) for key in ("server", "token_file", "ca", "kubeconfig", "context")}

    async def names() -> list[str]:
        found: list[str] = []
        async with asyncio.timeout(_TIMEOUT), connect(Connection(**flags), warn=lambda _: None) as sluice:
            where = namespace_for(resource, parameters.get("namespace"), sluice)
            async with aclosing(sluice.documents(resource.plural).list(namespace=where)) as items:
                async for item in items:
                    # A workload is offered by the name of its Job, which users know; all commands accept it.
                    found.append((item.get("spec", {}).get("object") or item["metadata"])["name"])
                    if len(found) == _MAX_NAMES:
                        break
        return found

    try:
        return list(dict.fromkeys(asyncio.run(names())))
    except (SluiceError, TimeoutError):
        return []
