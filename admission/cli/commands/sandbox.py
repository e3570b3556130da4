"""`sluice sandbox`: a simulated Kubernetes cluster in one process, for kubectl and `sluice serve`."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from admission.cli.errors import BadFlag, CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.sandbox.sandbox import Sandbox

_KUBECONFIGS = {"admin": "kubeconfig", **{user: f"{user}.kubeconfig" for user in ("alice", "bob", "sluice")}}
"""User -> file name. alice and bob have the permissions that RBAC grants them, sluice is the user of `sluice serve`."""

_MOST_LEVELS: Final = 3
"""Blocks, racks and nodes."""


@click.command()
@click.option(
    "--port",
    default=0,
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Port on 127.0.0.1.  [default: a free one]",
)
@click.option(
    "--speed",
    default=1.0,
    type=click.FloatRange(0, min_open=True),
    show_default=True,
    metavar="FACTOR",
    help="Speed of its clock, as a multiple of real time.",
)
@click.option(
    "--nodes", default=10, type=click.IntRange(0), show_default=True, metavar="N", help="Number of simulated nodes."
)
@click.option(
    "--topology",
    default="",
    metavar="SIZES",
    help="Nodes in blocks and racks instead: BLOCKSxRACKSxNODES such as 4x8x16, or RACKSxNODES.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="GROUP/KIND",
    help="Custom resource to serve, with a simulated operator, for example ray.io/raycluster; repeatable.",
)
@click.option(
    "--no-controllers", is_flag=True, help="Run the API server only: no controllers, operators, scheduler or kubelets."
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the kubeconfig files.  [default: a temporary one]",
)
def sandbox(
    *,
    port: int,
    speed: float,
    nodes: int,
    topology: str,
    kinds: tuple[str, ...],
    no_controllers: bool,
    directory: Path | None,
) -> None:
    """Run a simulated Kubernetes cluster on this machine, until interrupted (^C).

    It has an API server for kubectl and other clients, simulated nodes, and controllers
    that take Jobs and pods through their lifecycle. Nothing is persisted.

    \b
    Examples:
      sluice sandbox
      sluice sandbox --speed 60 --nodes 100 --directory sandbox
      sluice sandbox --topology 2x4x8
      sluice sandbox --kind ray.io/raycluster --kind batch.volcano.sh/job
    """
    try:
        from admission.sandbox import main
    except ModuleNotFoundError as error:
        raise CommandError("Sluice's image is without the sandbox: install the wheel") from error

    if topology:
        simulated = main.nodes_of_topology(_sizes(topology))
    else:
        simulated = (main.simulated_node(f"node-{index}") for index in range(nodes))
    with contextlib.ExitStack() as stack:
        folder = directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-sandbox-")))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"the directory {folder} cannot be created: {error.strerror}") from error
        stack.enter_context(_only_sandbox_in(folder))

        def ready(started: Sandbox) -> None:
            for user, file in _KUBECONFIGS.items():
                started.write_kubeconfig(folder / file, user)
            click.echo(f"export KUBECONFIG={shlex.quote(str((folder / _KUBECONFIGS['admin']).absolute()))}")

        asyncio.run(
            main.serve(
                port=port, controllers=not no_controllers, speed=speed, nodes=simulated, kinds=kinds, ready=ready
            )
        )


@contextlib.contextmanager
def _only_sandbox_in(folder: Path) -> Iterator[None]:
    """Hold `folder` for one sandbox, which alone has kubeconfigs there. Raises CommandError if another runs there.

    Who waits for the file would otherwise get that of a cluster which is gone, or lose that of the running one.
    """
    held = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CommandError(
                f"another sandbox uses the directory {folder}: stop that one, or choose another by --directory"
            ) from error
        _delete_kubeconfigs(folder)  # of one that was killed
        yield
        _delete_kubeconfigs(folder)
    finally:
        os.close(held)


def _delete_kubeconfigs(folder: Path) -> None:
    for file in _KUBECONFIGS.values():
        (folder / file).unlink(missing_ok=True)


def _sizes(text: str) -> list[int]:
    """Return the numbers of `4x8x16`. Raises BadFlag."""
    parts = text.split("x")
    if len(parts) > _MOST_LEVELS or not all(part.isascii() and part.isdecimal() and int(part) for part in parts):
        raise BadFlag(f'--topology: "{text}" is not BLOCKSxRACKSxNODES such as 4x8x16, RACKSxNODES or NODES')
    return [int(part) for part in parts]
