"""How Python is told to collect garbage and to share itself among threads, in a process that lasts."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


_blocks = count()
"""How often it was frozen what stays, in this process."""


def tune() -> None:
    """Two defaults of Python that cost a third of a watch event, and half of a commit, when it is busy."""
    # The commit's thread needs the interpreter back after each statement; 5 ms each time would be most of it.
    sys.setswitchinterval(0.0005)
    # What was imported lives for ever, and Kubernetes objects hold no cycles: all objects are looked through after 50
    # million new ones, the younger ones in portions of some milliseconds, for decisions and probes wait meanwhile.
    gc.freeze()
    gc.set_threshold(20_000, 5, 500)


@contextmanager
def without_garbage() -> Iterator[None]:
    """While nearly all that is made stays: to look for garbage in 105,000 workloads, again and again, took 0.3 s.

    What was made in the block before the last one is collected first: objects of a lead refer to one another, and those
    that are frozen are never looked at, so that each lead, and each start anew, would leave all that it knew.
    """
    usual = gc.get_threshold()
    gc.unfreeze()
    if next(_blocks):
        gc.collect()
    gc.set_threshold(1_000_000)
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*usual)
