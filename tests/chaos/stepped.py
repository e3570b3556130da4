"""`sluice` on a wall clock that can be set: `python -m tests.chaos.stepped FILE serve ...` adds the seconds in FILE.

Monotonic time goes on as it does when an operator, or NTP, sets the clock of a machine.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from pathlib import Path

_SECONDS = struct.Struct("<d")


def set_offset(file: Path, seconds: float) -> None:
    """From now on the clock of whoever reads `file` is so many seconds ahead."""
    with file.open("r+b" if file.exists() else "w+b") as opened:
        opened.write(_SECONDS.pack(seconds))


def _main(file: Path) -> None:
    with file.open("rb") as opened:
        view = mmap.mmap(opened.fileno(), _SECONDS.size, access=mmap.ACCESS_READ)
    true = time.time
    time.time = lambda: true() + _SECONDS.unpack_from(view)[0]

    from admission.cli.main import main  # only now, since it takes time.time as a default of parameters

    main()


if __name__ == "__main__":
    _main(Path(sys.argv.pop(1)))
