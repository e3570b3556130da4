"""`sluice sandbox`: a pretend cluster in one process, for kubectl and for `sluice serve`."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from admission.cli.errors import CommandError

if TYPE_CHECKING:
    from admission.sandbox.sandbox import Sandbox

_KUBECONFIGS = {"admin": "kubeconfig", **{user: f"{user}.kubeconfig" for user in ("alice", "bob", "sluice")}}
"""By user: alice and bob may what RBAC lets them, sluice is for `sluice serve`."""


@click.command()
@click.option(
    "--port", default=0, type=click.IntRange(0, 65535), help="Port on 127.0.0.1; without it, one that is free."
)
@click.option(
    "--speed",
    default=1.0,
    type=click.FloatRange(0, min_open=True),
    show_default=True,
    help="How many times faster than time it runs.",
)
@click.option("--nodes", default=3, type=click.IntRange(0), show_default=True, help="Pretend nodes.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    help="A custom resource that is served, with a pretend operator, such as ray.io/raycluster; may be repeated.",
)
@click.option("--no-controllers", is_flag=True, help="Only the API server: no Job controller, scheduler or kubelets.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the kubeconfigs are written; without it, a directory that is removed at the end.",
)
def sandbox(
    *, port: int, speed: float, nodes: int, kinds: tuple[str, ...], no_controllers: bool, directory: Path | None
) -> None:
    """Run a pretend Kubernetes cluster on this machine, until it is ended (^C).

    It has an API server that ordinary kubectl talks to, pretend nodes, and the
    controllers that make Jobs and pods go through their lives. It keeps nothing.

    \b
    Examples:
      sluice sandbox
      sluice sandbox --speed 60 --nodes 100 --directory sandbox
      sluice sandbox --kind ray.io/raycluster --kind batch.volcano.sh/job
    """
    try:
        from admission.sandbox import main
    except ModuleNotFoundError as error:
        raise CommandError(f"the sandbox needs the package {error.name}: pip install 'sluice[sandbox]'") from error

    with contextlib.ExitStack() as stack:
        folder = directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-sandbox-")))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"the directory {folder} cannot be made: {error.strerror}") from error

        def ready(started: Sandbox) -> None:
            for user, file in _KUBECONFIGS.items():
                started.write_kubeconfig(folder / file, user)
            click.echo(f"export KUBECONFIG={shlex.quote(str((folder / _KUBECONFIGS['admin']).absolute()))}")

        asyncio.run(
            main.serve(port=port, controllers=not no_controllers, speed=speed, nodes=nodes, kinds=kinds, ready=ready)
        )
