"""Store on a copy of the migrated SQLite file, for fixtures that several tests of a module share."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from admission.store.store import Store


@asynccontextmanager
async def sqlite_store(template: Path, folder: Path, clock: Callable[[], float] | None = None) -> AsyncIterator[Store]:
    """Open an empty store in `folder`; `template` is the fixture `sqlite_template`, `clock` None: the real time."""
    path = folder / "sluice.db"
    shutil.copyfile(template, path)
    clocks = {} if clock is None else {"clock": clock, "elapsed": clock}
    async with Store.open(f"sqlite:///{path}", **clocks) as opened:
        yield opened
