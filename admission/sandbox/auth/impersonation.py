"""Impersonation: the user that the Impersonate-* headers name, and the permissions needed for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import bad_request
from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.rbac import RequestAttributes
from admission.sandbox.auth.users import ANONYMOUS, AUTHENTICATED, named_user

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission.sandbox.auth.rbac import Authorizer

_AUTHENTICATION = "authentication.k8s.io"
_EXTRA = "impersonate-extra-"


def impersonate(headers: Mapping[str, str], user: User, attributes: RequestAttributes, authorizer: Authorizer) -> User:
    """Return the user that the request acts as: `user` itself unless it has Impersonate-* headers.

    `attributes` are the request's, for the message. Raises ApiError: 400 (no user name), 403 (not permitted).
    """
    if not any(header.lower().startswith("impersonate-") for header in headers):
        return user
    name, uid, groups, extra = _impersonated(headers)
    if name is None:
        if groups or uid or extra:
            raise bad_request("requested groups, uid or extra without impersonating a user name")
        return user
    for permission in _required_permissions(name, uid, groups, extra):
        if authorizer.reason(user, permission) is None:
            raise attributes.forbidden(user, verb=f"impersonate-on:user-info:{attributes.verb}")
    return User(name, uid, _groups(name, groups), tuple((key, tuple(values)) for key, values in sorted(extra.items())))


def _impersonated(headers: Mapping[str, str]) -> tuple[str | None, str, tuple[str, ...], dict[str, list[str]]]:
    name, uid = None, ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}
    for header, value in headers.items():
        lower = header.lower()
        if lower == "impersonate-user":
            name = value
        elif lower == "impersonate-group":
            groups = (*groups, value)
        elif lower == "impersonate-uid":
            uid = value
        elif lower.startswith(_EXTRA):
            extra.setdefault(lower.removeprefix(_EXTRA), []).append(value)
    return name, uid, groups, extra


def _required_permissions(
    name: str, uid: str, groups: tuple[str, ...], extra: dict[str, list[str]]
) -> Iterator[RequestAttributes]:
    """Yield the permissions that impersonating this user requires."""
    parts = name.split(":")
    if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4:
        yield RequestAttributes("impersonate", "", "serviceaccounts", parts[2], parts[3])
    else:
        yield RequestAttributes("impersonate", "", "users", "", name)
    if uid:
        yield RequestAttributes("impersonate", _AUTHENTICATION, "uids", "", uid)
    for group in groups:
        yield RequestAttributes("impersonate", "", "groups", "", group)
    for key, values in extra.items():
        for value in values:
            yield RequestAttributes("impersonate", _AUTHENTICATION, f"userextras/{key}", "", value)


def _groups(name: str, requested: tuple[str, ...]) -> tuple[str, ...]:
    """Return the requested groups, by default those of the name; all users but anonymous get `system:authenticated`."""
    default = named_user(name).groups
    if not requested or name == ANONYMOUS.name:
        return default
    return requested if AUTHENTICATED in requested else (*requested, AUTHENTICATED)
