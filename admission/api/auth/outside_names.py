"""Users whom somebody outside of the cluster names: an OpenID Connect issuer, or a proxy in front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.api.auth.authentication import Identity
from admission.api.errors import Forbidden

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.api.auth.authentication import Door

AUTHENTICATED: Final = "system:authenticated"
_SYSTEM: Final = "system:"
_LONGEST_NAME: Final = 512
_MOST_GROUPS: Final = 1000


def outside_user(name: str, groups: Iterable[str], door: Door, *, source: str) -> Identity:
    """The user of that name, in those of the groups that can come from outside. Raises Forbidden.

    No user or group of the `system:` kind can: who may choose a name there must not become a master of the cluster.
    """
    if not name or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise Forbidden(f"you may not sign in here: a user name has 1 to {_LONGEST_NAME} printable characters")
    if name.startswith(_SYSTEM):
        raise Forbidden(f"you may not sign in here: user names that begin with {_SYSTEM} are those of the cluster")
    found = [group for group in groups if group and group.isprintable() and not group.startswith(_SYSTEM)]
    return Identity(name, door, groups=(*found[:_MOST_GROUPS], AUTHENTICATED), source=source)
