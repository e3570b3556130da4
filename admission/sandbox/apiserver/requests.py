"""Who asks the API server for something, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object


@dataclass(frozen=True, slots=True)
class User:
    """A user; `groups` and `extra` as admission reviews show them."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def info(self) -> Object:
        """The user as reviews show it."""
        shown: Object = {"username": self.name}
        if self.uid:
            shown["uid"] = self.uid
        if self.groups:
            shown["groups"] = list(self.groups)
        if self.extra:
            shown["extra"] = {key: list(values) for key, values in self.extra}
        return shown


@dataclass(slots=True)
class Call:
    """Who asks, and how: what all operations of one request share. `options` is what webhooks are shown."""

    user: User
    dry_run: bool = False
    options: Object = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete. `grace` in seconds; `propagation` is Foreground, Background, Orphan or None for the default."""

    grace: int | None = None
    propagation: str | None = None
    uid: str | None = None
    version: str | None = None
