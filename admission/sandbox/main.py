"""Server loop of `sluice sandbox`: a sandbox with simulated nodes, until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import signal
from itertools import product
from typing import TYPE_CHECKING

from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.users import AUTHENTICATED, DEFAULT_USERS, MASTERS
from admission.sandbox.operators import serve_kinds
from admission.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from admission.sandbox.apiserver.objects import Object

# Sluice has its own user, so that its requests can be distinguished from an administrator's.
_USERS = {**DEFAULT_USERS, "sluice-token": User("sluice", "6", (MASTERS, AUTHENTICATED))}


def simulated_node(name: str, *, cpu: str = "10") -> Object:
    """Return a node for the simulated kubelet, with 64 GiB and room for 110 pods."""
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {"capacity": {"cpu": cpu, "memory": "64Gi", "pods": "110"}},
    }


def nodes_of_topology(sizes: Sequence[int]) -> Iterator[Object]:
    """Yield simulated nodes in racks, and those in blocks; all have the label `pool`.

    `sizes`: numbers of blocks, of racks in each, and of nodes in each; without the first, or the first two of them,
    there are no blocks, or no racks either.
    """
    levels = ("block", "rack")[-(len(sizes) - 1) :] if len(sizes) > 1 else ()
    for place in product(*map(range, sizes)):
        node = simulated_node("-".join(map(str, ("node", *place))))
        labels = {level: "-".join(map(str, (level, *place[: at + 1]))) for at, level in enumerate(levels)}
        node["metadata"]["labels"] |= {"pool": "gpu", **labels}
        yield node


async def serve(
    *,
    port: int,
    controllers: bool,
    speed: float,
    nodes: Iterable[Object],
    kinds: Iterable[str] = (),
    ready: Callable[[Sandbox], None],
) -> None:
    """Run a sandbox until SIGINT or SIGTERM; `ready` is called when it serves requests and its `nodes` exist.

    `kinds` are custom resources to serve, by their names in the setting `integrations`; with `controllers` each has a
    simulated operator, too. Raises SandboxError if the port is taken or a kind has no simulated operator, InvalidObject
    for an unknown name.
    """
    # Thousands of long-lived objects make each full collection expensive, and hardly any of them is cyclic garbage.
    gc.set_threshold(50_000, 20, 100)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with (
        Sandbox(port=port, controllers=controllers, speed=speed, users=_USERS) as sandbox,
        serve_kinds(sandbox, kinds, operators=controllers),
    ):
        client = sandbox.local("system:admin")
        for node in nodes:
            await client.create("nodes", "", node)
        ready(sandbox)
        await stop.wait()
