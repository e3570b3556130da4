"""Names of objects on the server, offered by shells to complete a command line."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from admission.cli.arguments.connection import Connection, connect
from admission.cli.arguments.objects import scope
from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.api.registry import Resource

_SECONDS = 2.0
"""How long a shell waits at most for names."""
_MOST = 1000
"""Names offered at most."""


def names_of(resource: Resource, parameters: Mapping[str, Any]) -> list[str]:
    """The names of objects of `resource`, asked with the flags on the line; none if Sluice is slow."""
    flags = {key: parameters.get(key) for key in ("server", "token_file", "ca", "kubeconfig", "context")}

    async def names() -> list[str]:
        found: list[str] = []
        async with asyncio.timeout(_SECONDS), connect(Connection(**flags), warn=lambda _: None) as sluice:
            where = scope(resource, parameters.get("namespace"), sluice)
            async with aclosing(sluice.documents(resource.plural).list(namespace=where)) as items:
                async for item in items:
                    # People know the name of the Job; that of its workload they do not.
                    found.append((item.get("spec", {}).get("object") or item["metadata"])["name"])
                    if len(found) == _MOST:
                        break
        return found

    try:
        return list(dict.fromkeys(asyncio.run(names())))
    except (SluiceError, TimeoutError):
        return []
