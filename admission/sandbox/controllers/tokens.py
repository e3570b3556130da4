"""Simulated token controller: the token of a Secret of type `kubernetes.io/service-account-token`."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Protocol

from admission.sandbox.controllers.base import SimulatedController

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

_TYPE = "kubernetes.io/service-account-token"
_ACCOUNT = "kubernetes.io/service-account.name"


class IssueToken(Protocol):
    """Issues a token of a service account that authenticates it while `is_valid`, and returns it with the CA in PEM."""

    def __call__(self, namespace: str, name: str, is_valid: Callable[[], bool], /) -> tuple[str, str]:
        """Return token and CA."""


class TokenController(SimulatedController[tuple[str, str]]):
    """Keys are (namespace, name) of Secrets."""

    plurals = ("secrets",)

    def __init__(self, local: LocalClient, clock: Clock, issue: IssueToken) -> None:
        super().__init__(local, clock)
        self._issue = issue

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        del plural, before
        if change != "DELETED" and obj.get("type") == _TYPE:
            self.enqueue((obj["metadata"]["namespace"], obj["metadata"]["name"]))

    async def sync(self, key: tuple[str, str]) -> None:
        """Write token and CA into a Secret that has none, if its service account exists."""
        namespace, name = key
        secret = self.local.get("secrets", namespace, name)
        if secret is None or (secret.get("data") or {}).get("token"):
            return
        account = (secret["metadata"].get("annotations") or {}).get(_ACCOUNT, "")
        found = self.local.get("serviceaccounts", namespace, account)
        if found is None:
            return
        uids = secret["metadata"]["uid"], found["metadata"]["uid"]

        def is_valid() -> bool:
            now = self.local.get("secrets", namespace, name), self.local.get("serviceaccounts", namespace, account)
            return tuple(each and each["metadata"]["uid"] for each in now) == uids

        token, authority = self._issue(namespace, account, is_valid)
        data = {"token": token, "ca.crt": authority, "namespace": namespace}
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
        await self.local.patch("secrets", namespace, name, {"data": encoded})
