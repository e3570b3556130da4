"""Who has sent a request: its authenticated user, and the author of a write."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from aiohttp import web

from admission.api.errors import Forbidden
from admission.store.audit_log import Author

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

AUTHENTICATED: Final = "system:authenticated"
"""Group of all authenticated users; API servers add it, and so does Sluice for users of its own authentication."""
_SYSTEM: Final = "system:"
_LONGEST_NAME: Final = 512
_MOST_GROUPS: Final = 1000


class AuthMethod(StrEnum):
    """How a request was authenticated. A session that was opened with a token counts as that token."""

    ADMIN_TOKEN = "admin-token"  # noqa: S105  the name of a method, not a token
    TOKEN = "token"  # noqa: S105
    FRONT_PROXY = "front-proxy"
    """The API server's front proxy (aggregation layer)."""
    AUTHENTICATING_PROXY = "authenticating-proxy"
    """A proxy that the admin has configured (setting `requestHeader`)."""
    OIDC = "oidc"


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated user with the fields of Kubernetes' UserInfo, and the client's address."""

    name: str
    auth_method: AuthMethod
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    source: str = ""
    """Address of the client: of the TCP peer, or as reported by a trusted proxy."""


IDENTITY = web.RequestKey("identity", Identity)
"""Request key of the user; set before the handler on every route that is not in PUBLIC."""

_VERBS: Mapping[str, str] = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def identity(request: web.Request) -> Identity:
    """Return the authenticated user of a request."""
    return request[IDENTITY]


def author(request: web.Request, *, verb: str = "") -> Author:
    """Return the author of a write, for revisions and the audit log.

    The reason is taken from the parameter `?reason=` or the header `X-Change-Reason`; `verb` overrides the verb that
    follows from the HTTP method.
    """
    who = request[IDENTITY]
    reason = request.query.get("reason", "") or request.headers.get("X-Change-Reason", "")
    return Author(who.name, who.groups, who.source, verb or _VERBS.get(request.method, ""), reason)


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
