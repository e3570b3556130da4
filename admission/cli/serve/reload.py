"""Reload of the settings while `sluice serve` runs: applies those that can change, and logs which need a restart."""

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
from admission.store.errors import InvalidDatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

PERIOD: Final = 5.0
"""Seconds between checks of the files for changes."""


class Reload:
    """Reloads the settings on SIGHUP, or when one of `files` has changed.

    `load` loads the settings as at startup. `uses` maps the name of each setting that can change to the function that
    applies it.
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
        """Watch for changes until cancelled. Without files nothing can change, and SIGHUP keeps its default action."""
        if not self._files:
            return
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._hangup.set)
        try:
            while True:
                by_signal = await self._wait(pause)
                content = self._content()
                if by_signal or content != self._seen:
                    self._seen = content
                    self.reload()
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    async def _wait(self, pause: Callable[[float], Awaitable[None]]) -> bool:
        """Wait until SIGHUP or the next check is due; return whether it was SIGHUP."""
        waiting = [asyncio.ensure_future(self._hangup.wait()), asyncio.ensure_future(pause(PERIOD))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        by_signal = self._hangup.is_set()
        self._hangup.clear()
        return by_signal

    def reload(self) -> None:
        """Load the settings, apply those that can change, and log the result. Invalid settings are only logged."""
        if (pipe := next(filter(_is_special, self._files), None)) is not None:
            log.error("the settings are not reloaded: %s is not a regular file; replace it, or restart", pipe)
            return
        try:
            new = self._load()
            changed = [name for name in Settings.model_fields if getattr(new, name) != getattr(self._settings, name)]
            used = [name for name in changed if name in self._uses and self._may_change(name, new)]
        except (InvalidSettings, InvalidDatabaseUrl) as error:
            log.error("the changed settings are not used, because they are invalid: %s", error)
            return
        for name in used:
            self._uses[name](new)
        self._settings = self._settings.model_copy(update={name: getattr(new, name) for name in used})
        if used:
            log.info("settings reloaded; now in effect: %s", _spelled(used))
        if refused := [name for name in changed if name not in used]:
            log.warning("read only at startup, so that a restart is needed: %s", _spelled(refused))
        if not changed:
            log.info("settings reloaded; nothing has changed")

    def _may_change(self, name: str, new: Settings) -> bool:
        """Whether a changed setting can be applied. Of the database URL only the password can change.

        Raises InvalidDatabaseUrl.
        """
        if name != "database_url":
            return True
        before, after = (Location.parse(each.database_url).url for each in (self._settings, new))
        return before.set(password="") == after.set(password="")

    def _content(self) -> tuple[str, ...]:
        return tuple(map(_digest, self._files))


def _digest(file: Path) -> str:
    """Return a digest of the file's content; empty if it cannot be read."""
    if _is_special(file):
        return ""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def _is_special(file: Path) -> bool:
    """Whether it is a pipe, a device or a folder. A pipe may block its reader, or was read to its end at the start."""
    try:
        return file.exists() and not file.is_file()
    except OSError:  # such as a folder that may not be searched: loading the settings reports it
        return False


def _spelled(names: Iterable[Any]) -> str:
    return ", ".join(map(to_camel, names))
