"""Attributes of a request: its user and its options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user; `groups` and `extra` as in the UserInfo of admission reviews."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def info(self) -> Object:
        """Return the UserInfo of admission and token reviews."""
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
    """Context shared by all operations of one request.

    `options` are the CreateOptions, UpdateOptions ... that webhooks receive; `warnings` become Warning headers.
    """

    user: User
    dry_run: bool = False
    options: Object = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of a deletion; None means not specified.

    `grace` is in seconds, `propagation` Foreground, Background or Orphan, `uid` and `version` (a resourceVersion) are
    preconditions.
    """

    grace: int | None = None
    propagation: str | None = None
    uid: str | None = None
    version: str | None = None
