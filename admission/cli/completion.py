"""`sluice completion`: what makes a shell complete commands, types, and names from the server."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

from admission.cli.connection import Connection, connect
from admission.cli.objects import scope
from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.api.registry import Resource

_SECONDS = 2.0
_MOST = 1000


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str) -> None:
    """Print the code that makes a shell complete what you type.

    \b
    Examples:
      source <(sluice completion bash)
      sluice completion zsh > ~/.zfunc/_sluice
      sluice completion fish > ~/.config/fish/completions/sluice.fish
    """
    from admission.cli.main import main

    shell_class = get_completion_class(shell)
    assert shell_class is not None
    click.echo(shell_class(main, {}, "sluice", "_SLUICE_COMPLETE").source())


def names_of(resource: Resource, parameters: Mapping[str, Any]) -> list[str]:
    """The names to choose from, as the flags on the line say; none if Sluice does not answer at once."""
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
