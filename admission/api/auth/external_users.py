"""Users authenticated outside of the cluster: by an OpenID Connect issuer or an authenticating proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.api.auth.authentication import Identity
from admission.api.errors import Forbidden

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.api.auth.authentication import AuthMethod

AUTHENTICATED: Final = "system:authenticated"
"""Group of all authenticated users; API servers add it, and so does Sluice for users of its own authentication."""
_SYSTEM: Final = "system:"
_LONGEST_NAME: Final = 512
_MOST_GROUPS: Final = 1000


def external_user(name: str, groups: Iterable[str], auth_method: AuthMethod, *, source: str) -> Identity:
    """Return an external user with the groups that may come from outside. Raises Forbidden for an unacceptable name.

    `system:` users are refused and `system:` groups dropped: an issuer or proxy that assigns names freely must not be
    able to grant the rights of `system:masters`.
    """
    if not name or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise Forbidden(f"you may not sign in here: a user name has 1 to {_LONGEST_NAME} printable characters")
    if name.startswith(_SYSTEM):
        raise Forbidden(f"you may not sign in here: user names that begin with {_SYSTEM} are reserved for the cluster")
    found = [group for group in groups if group and group.isprintable() and not group.startswith(_SYSTEM)]
    return Identity(name, auth_method, groups=(*found[:_MOST_GROUPS], AUTHENTICATED), source=source)
