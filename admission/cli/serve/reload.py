"""Settings that change while `sluice serve` runs: what is safe is used at once, of the rest is said that it is not."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import signal
from typing import TYPE_CHECKING, Any, Final

from pydantic.alias_generators import to_camel

from admission.cli.configuration.settings import Settings
from admission.cli.errors import InvalidSettings
from admission.store.database.connection import Location

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

PERIOD: Final = 5.0
"""Seconds between two looks at the files."""


class Reload:
    """Reads the settings again by SIGHUP, or when one of `files` has changed.

    `load` reads them as at the start. `uses` has, by name, what makes use of each setting that may change.
    """

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Settings],
        files: Iterable[Path],
        uses: Mapping[str, Callable[[Settings], None]],
    ) -> None:
        self._settings = settings
        self._load = load
        self._files = tuple(files)
        self._uses = uses
        self._seen = self._content()
        self._hangup = asyncio.Event()

    async def run(self, *, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Until cancelled. Without files there is nothing to read again, and SIGHUP ends the process as ever."""
        if not self._files:
            return
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._hangup.set)
        try:
            while True:
                asked = await self._asked(pause)
                content = self._content()
                if asked or content != self._seen:
                    self._seen = content
                    self.again()
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    async def _asked(self, pause: Callable[[float], Awaitable[None]]) -> bool:
        """Whether SIGHUP has come before the next look."""
        waiting = [asyncio.ensure_future(self._hangup.wait()), asyncio.ensure_future(pause(PERIOD))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        asked = self._hangup.is_set()
        self._hangup.clear()
        return asked

    def again(self) -> None:
        """Read them, use what may change, and log what has been done. Raises nothing."""
        try:
            new = self._load()
        except InvalidSettings as error:
            log.error("the changed settings are not used, because something in them is wrong: %s", error)
            return
        changed = [name for name in Settings.model_fields if getattr(new, name) != getattr(self._settings, name)]
        used = [name for name in changed if name in self._uses and self._may_change(name, new)]
        for name in used:
            self._uses[name](new)
        self._settings = self._settings.model_copy(update={name: getattr(new, name) for name in used})
        if used:
            log.info("settings are read again; in use from now on: %s", _spelled(used))
        if refused := [name for name in changed if name not in used]:
            log.warning("read at the start alone, so that a restart is needed: %s", _spelled(refused))
        if not changed:
            log.info("settings are read again; nothing has changed")

    def _may_change(self, name: str, new: Settings) -> bool:
        """Another database would be another Sluice; another password of the same one is not."""
        if name != "database_url":
            return True
        before, after = (Location.parse(each.database_url).url for each in (self._settings, new))
        return before.set(password="") == after.set(password="")

    def _content(self) -> tuple[str, ...]:
        return tuple(map(_digest, self._files))


def _digest(file: Path) -> str:
    """What tells one content from another; empty for a file that cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def _spelled(names: Iterable[Any]) -> str:
    return ", ".join(map(to_camel, names))
