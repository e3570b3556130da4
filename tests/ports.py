"""Loopback ports for the servers of tests, disjoint between up to 20 test processes on the machine."""

from __future__ import annotations

import secrets
import socket
from itertools import count
from typing import Final

FIRST: Final = 12_000
PER_PROCESS: Final = 1_000
"""Size of each process' range. All ranges are below 32,768, the start of Linux's ephemeral ports."""
_RANGES: Final = 20


def _reserve_range() -> int:
    """Return the first port of a range that no other process has; a random one's if all are reserved."""
    reservation = socket.socket(socket.AF_UNIX)
    for number in range(_RANGES):
        try:
            reservation.bind(f"\0sluice-test-ports-{number}")
        except OSError:
            continue
        reservation.detach()  # left open: the name is free again when this process ends
        return FIRST + number * PER_PROCESS
    reservation.close()
    return FIRST + secrets.randbelow(_RANGES) * PER_PROCESS


_first = _reserve_range()
_next = count(secrets.randbelow(PER_PROCESS))


def free_port() -> int:
    """Return a port on which no process listens, and that was not returned by the last 1,000 calls."""
    for _ in range(PER_PROCESS):
        port = _first + next(_next) % PER_PROCESS
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("all ports for the servers of tests are taken")
