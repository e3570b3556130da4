"""Loopback ports for the servers of tests, disjoint between the parallel workers of pytest-xdist."""

from __future__ import annotations

import os
import secrets
import socket
from itertools import count
from typing import Final

FIRST: Final = 12_000
PER_WORKER: Final = 2_000
"""Size of each worker's range. All ranges are below 32,768, the start of Linux's ephemeral ports."""

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_next = count(secrets.randbelow(PER_WORKER))


def free_port() -> int:
    """Return a port on which no process listens, and that was not returned by the last 2,000 calls."""
    for _ in range(PER_WORKER):
        port = FIRST + _worker % 9 * PER_WORKER + next(_next) % PER_WORKER
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("all ports for the servers of tests are taken")
