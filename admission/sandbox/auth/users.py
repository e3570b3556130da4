"""Authentication: users and their bearer tokens."""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import ApiError, invalid, not_found, unprocessable
from admission.sandbox.apiserver.requests import User
from admission.sandbox.clock import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry
    from admission.sandbox.clock import Clock

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
AUDIENCE = "https://kubernetes.default.svc"


def named_user(name: str) -> User:
    """Return the user of a name; the groups of a service account follow from its name."""
    if name in _COMPONENTS:
        return _COMPONENTS[name]
    if name == ANONYMOUS.name:
        return ANONYMOUS
    parts = name.split(":")
    if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4:
        return User(name, groups=("system:serviceaccounts", f"system:serviceaccounts:{parts[2]}", AUTHENTICATED))
    return User(name, groups=(AUTHENTICATED,))


_COMPONENTS = {"system:kube-controller-manager": User("system:kube-controller-manager", "2", (MASTERS, AUTHENTICATED))}
ANONYMOUS = User("system:anonymous", groups=(UNAUTHENTICATED,))
DEFAULT_USERS: dict[str, User] = {
    "admin-token": User("admin", "1", (MASTERS, AUTHENTICATED)),
    "alice-token": User("alice", "4", ("team-a", AUTHENTICATED)),
    "bob-token": User("bob", "5", ("team-b", AUTHENTICATED)),
    "sluice-token": User("sluice", "6", (MASTERS, AUTHENTICATED)),
}


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A bearer token, of a user or of a service account; `is_valid` is False once it has expired."""

    user: User
    audiences: tuple[str, ...]
    is_valid: Callable[[], bool]


class Authenticator:
    """Bearer token authenticator, for users and service accounts."""

    def __init__(self, users: Mapping[str, User], clock: Clock) -> None:
        self._clock = clock
        self._issued: dict[str, IssuedToken] = {}
        for token, user in users.items():
            self.add(user, token=token)

    def add(
        self,
        user: User,
        *,
        token: str = "",
        expires: float | None = None,
        is_valid: Callable[[], bool] = lambda: True,
    ) -> str:
        """Register and return a token of a user, by default a random one, which holds while `is_valid`.

        `expires`: its lifetime in seconds of the sandbox's clock; None: unlimited.
        """
        token = token or secrets.token_urlsafe(32)
        end = None if expires is None else self._clock.now() + expires
        self._issued[token] = IssuedToken(
            user, (AUDIENCE,), lambda: (end is None or self._clock.now() < end) and is_valid()
        )
        return token

    def remove(self, name: str) -> bool:
        """Revoke all tokens of a user; False: there were none."""
        tokens = [token for token, issued in self._issued.items() if issued.user.name == name]
        for token in tokens:
            del self._issued[token]
        return bool(tokens)

    def token(self, name: str) -> str | None:
        """Return a token of the user of this name; None: there is none."""
        return next((token for token, issued in self._issued.items() if issued.user.name == name), None)

    @property
    def names(self) -> list[str]:
        """Names of all users with a token."""
        return list(dict.fromkeys(issued.user.name for issued in self._issued.values()))

    def user(self, token: str, audience: str = AUDIENCE) -> User | None:
        """Return the user that a token authenticates for an audience; None: it is unknown, expired or for others."""
        issued = self._issued.get(token)
        if issued is None or audience not in issued.audiences or not issued.is_valid():
            return None
        return issued.user

    def issue(self, registry: ObjectRegistry, namespace: str, name: str, body: Object) -> Object:
        """Issue a token for a service account; return the TokenRequest with its status. Raises ApiError (404, 422)."""
        account = registry.find("", "serviceaccounts", namespace, name)
        if account is None:
            raise not_found(registry.resources["", "v1", "serviceaccounts"], name)
        spec = body.get("spec") or {}
        seconds, audiences = spec.get("expirationSeconds", 3600), spec.get("audiences") or [AUDIENCE]
        if seconds < 600:
            cause = invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
            raise unprocessable("authentication.k8s.io", "TokenRequest", "", [cause])
        bound = spec.get("boundObjectRef")
        if bound and registry.find("", "pods", namespace, bound.get("name", "")) is None:
            raise not_found(registry.resources["", "v1", "pods"], bound.get("name", ""))
        metadata = account["metadata"]
        ends = registry.clock.now() + seconds
        user = named_user(f"system:serviceaccount:{namespace}:{name}")
        credential = (("authentication.kubernetes.io/credential-id", (f"JTI={uuid.uuid4()}",)),)
        token = secrets.token_urlsafe(32)

        def is_valid() -> bool:
            current = registry.find("", "serviceaccounts", namespace, name)
            return current is not None and current["metadata"]["uid"] == metadata["uid"] and registry.clock.now() < ends

        self._issued[token] = IssuedToken(
            User(user.name, metadata["uid"], user.groups, credential), tuple(audiences), is_valid
        )
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": metadata["uid"],
                "creationTimestamp": registry.now(),
            },
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound},
            "status": {"token": token, "expirationTimestamp": rfc3339(ends)},
        }

    def authenticate(self, headers: Mapping[str, str]) -> User:
        """Return the user of a request; anonymous without a token. Raises ApiError (401) for an invalid one."""
        kind, _, token = headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token:
            return ANONYMOUS
        user = self.user(token.strip())
        if user is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return user
