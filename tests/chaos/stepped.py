"""A wall clock that can be set while `sluice` runs: the seconds in a file are added to the true time.

Monotonic time goes on as it does when an operator, or NTP, sets the clock of a machine.
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
    """From now on the clock of whoever reads `file` is so many seconds ahead."""
    with file.open("r+b" if file.exists() else "w+b") as opened:
        opened.write(_SECONDS.pack(seconds))


class SteppedTime:
    """Stands for `time.time`, and is the true time until it follows a file."""

    def __init__(self) -> None:
        self._true = time.time
        self._ahead: mmap.mmap | None = None

    def __call__(self) -> float:
        return self._true() if self._ahead is None else self._true() + _SECONDS.unpack_from(self._ahead)[0]

    def follow(self, file: Path) -> None:
        """From now on add what `set_offset` writes there."""
        with file.open("rb") as opened:
            self._ahead = mmap.mmap(opened.fileno(), _SECONDS.size, access=mmap.ACCESS_READ)
