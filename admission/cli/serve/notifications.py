"""Notifications in `sluice serve`: the notifier, with the receivers of the current settings."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from admission.notifications.notifier import Notifier
from admission.notifications.sending import NotificationSender

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from admission.cli.configuration.settings import Settings
    from admission.store.store import Store


class AllowedReceivers:
    """The allowed receivers, which can change while `serve` runs."""

    def __init__(self, settings: Settings) -> None:
        self._allowed = settings.notifications.allowed()

    def use(self, settings: Settings) -> None:
        """Use the receivers of changed settings from now on."""
        self._allowed = settings.notifications.allowed()

    @asynccontextmanager
    async def opened(self, store: Store) -> AsyncIterator[Notifier]:
        """Open a notifier; its connections are closed at the end of the block."""
        async with NotificationSender.open(lambda: self._allowed) as sender:
            yield Notifier(store, lambda: self._allowed, sender, clock=store.now)
