"""Wall clock that can be set while `sluice` runs: the seconds in a file are added to the real time.

Monotonic time is not affected, as when an operator, or NTP, sets the clock of a machine.
"""

from __future__ import annotations

import mmap
import struct
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SECONDS = struct.Struct("<d")


def set_offset(file: Path, seconds: float) -> None:
    """Set the clock of all processes that follow `file` `seconds` ahead of real time."""
    with file.open("r+b" if file.exists() else "w+b") as opened:
        opened.write(_SECONDS.pack(seconds))


def offset_of(file: Path) -> float:
    """Return how far the clock of the processes that follow `file` is ahead of real time, in seconds."""
    return float(_SECONDS.unpack(file.read_bytes())[0])


class SteppedTime:
    """Replacement for `time.time`; returns the real time until it follows a file."""

    def __init__(self) -> None:
        self._true = time.time
        self._ahead: mmap.mmap | None = None

    def __call__(self) -> float:
        return self._true() if self._ahead is None else self._true() + _SECONDS.unpack_from(self._ahead)[0]

    def follow(self, file: Path) -> None:
        """Add the offset that `set_offset` writes to `file`, from now on."""
        with file.open("rb") as opened:
            self._ahead = mmap.mmap(opened.fileno(), _SECONDS.size, access=mmap.ACCESS_READ)
