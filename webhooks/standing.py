"""Which gate stands: the webhook or admission policies. Sluice writes the one that is wanted, then removes the other.

While it changes from one to the other both stand, so that no Job slips through: what is new takes the API servers a
moment until it is in force.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from admission.cluster.desired import Outcome, reconcile
from admission.cluster.errors import NotFound
from admission.model.errors import SluiceError
from webhooks.errors import PoliciesNotOffered
from webhooks.pod_policies import PODS_GATED, PODS_KEEP, pod_policies
from webhooks.policies import (
    MUTATING,
    VALIDATING,
    are_written_for,
    gate,
    is_job,
    managed_gate,
    managed_keeping,
    sorts,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from admission.cluster.client import Client
    from admission.kinds.base import Kind, Object
    from webhooks.scope import Scope

log = logging.getLogger(__name__)

Mode: TypeAlias = Literal["webhooks", "policies", "auto"]

OVERLAP: Final = 5.0
"""Seconds that both gates stand: many times what an API server needs to put a policy in force."""
PERIOD: Final = 60.0
"""Seconds between two looks at what others may have changed, switched off or deleted."""

CONTESTED: Final = 3
"""Looks in a row that find the gate changed after which somebody else must be writing it, too."""

_CONTESTED_TEXT: Final = (
    "the gate was changed by somebody else each time that it was brought up to date, and Jobs may be refused: another "
    "replica of Sluice with certificates of its own, another --webhook-url or other kinds? Replicas share certificates "
    "by --certificate-secret, and have the same settings"
)

_PATH: Final = "/apis/admissionregistration.k8s.io/v1"
_PLURALS: Final = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
    MUTATING: "mutatingadmissionpolicies",
    f"{MUTATING}Binding": "mutatingadmissionpolicybindings",
    VALIDATING: "validatingadmissionpolicies",
    f"{VALIDATING}Binding": "validatingadmissionpolicybindings",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """The gate of one cluster. `webhook` gives the configuration as it should be now; None: nobody could call it.

    `leads` is asked before anything is removed: of replicas with different settings one alone may do that.
    """

    client: Client
    mode: Mode
    kinds: tuple[Kind, ...]
    scope: Scope
    webhook: Callable[[], Object] | None
    leads: Callable[[], bool] = lambda: True
    off: set[str] = field(default_factory=set, init=False)
    """What was switched off when it was last looked at, by kind and name."""

    async def ensure(self) -> bool:
        """Write what should be there. Whether anything had to be done. Raises ClusterError, PoliciesNotOffered."""
        wanted = self._wanted(await self._offered())
        found = {
            f"{obj['kind']} {obj['metadata']['name']}": await reconcile(
                self.client, _collection(obj["kind"]), obj, is_ours=is_ours
            )
            for obj in wanted
        }
        self._tell_of_switch({name for name, how in found.items() if how is Outcome.SWITCHED_OFF})
        return Outcome.CHANGED in found.values()

    def _tell_of_switch(self, off: set[str]) -> None:
        """Log what was switched off or on since the last look."""
        if fresh := off - self.off:
            log.warning(
                "switched off (`sluice gate off`) and left so: %s; Jobs with a queue label are created and run without "
                "Sluice until `sluice gate on`",
                ", ".join(sorted(fresh)),
            )
        if back := self.off - off:
            log.warning("switched on again: %s; Jobs with a queue label are gated", ", ".join(sorted(back)))
        self.off.clear()
        self.off.update(off)

    async def clear(self) -> list[str]:
        """Remove what is ours and should not be there; its names. Only once `ensure` has found nothing to do.

        Raises ClusterError, PoliciesNotOffered.
        """
        offered = await self._offered()
        wanted = {(obj["kind"], obj["metadata"]["name"]) for obj in self._wanted(offered)}
        removed = []
        for kind, name in self._ours() if wanted else ():
            if (kind, name) not in wanted and _PLURALS[kind] in offered and await self._remove(kind, name):
                removed.append(f"{kind} {name}")
        return removed

    async def gates_by_policies(self) -> bool:
        """Whether policies are what is wanted here. Raises ClusterError, PoliciesNotOffered."""
        return self._by_policies(await self._offered())

    async def registered_webhook(self) -> str:
        """Where the API server calls the webhook now, whoever registered it; empty: it calls none. Raises ClusterError.

        It is a URL, or a Service as `namespace/name`.
        """
        try:
            found = await self.client.get(f"{_collection('MutatingWebhookConfiguration')}/sluice")
        except NotFound:
            return ""
        called = [webhook["clientConfig"] for webhook in found.get("webhooks") or ()]
        if not called:
            return ""
        service = called[0].get("service", {})
        return str(called[0].get("url") or f"{service.get('namespace')}/{service.get('name')}")

    async def keep(
        self, *, refresh: Callable[[], Awaitable[None]], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """For ever: `refresh` the certificates in time, and keep the gate as it should be. Raises nothing."""
        pause, rewritten = OVERLAP, 0
        while True:
            await sleep(pause)
            pause = PERIOD
            try:
                await refresh()
                rewritten = rewritten + 1 if await self.ensure() else 0
                if rewritten:
                    log.info("the gate was brought up to date")
                    pause = OVERLAP
                    if rewritten == CONTESTED:
                        log.warning(_CONTESTED_TEXT)
                elif self.leads() and (removed := await self.clear()):
                    log.info("removed, because another gate is in force: %s", ", ".join(removed))
            except SluiceError as error:
                log.warning("the gate could not be checked: %s", error)

    async def _offered(self) -> frozenset[str]:
        """Which resources of the group the API server has."""
        found = await self.client.get(_PATH)
        return frozenset(resource["name"] for resource in found["resources"])

    def _by_policies(self, offered: Iterable[str]) -> bool:
        if self.mode == "webhooks" or (self.mode == "auto" and _PLURALS[MUTATING] not in offered):
            return False
        if _PLURALS[MUTATING] not in offered:
            raise PoliciesNotOffered(
                "this API server has no MutatingAdmissionPolicy of admissionregistration.k8s.io/v1, which is part of "
                "Kubernetes from 1.36 on: set admission to auto or webhooks"
            )
        return True

    def _wanted(self, offered: Iterable[str]) -> list[Object]:
        by_policies = self._by_policies(offered)
        if not by_policies and self.webhook is None:
            return []
        wanted = [] if self.webhook is None else [self.webhook()]
        if by_policies:
            wanted = [self._of_others(configuration) for configuration in wanted if any(self._others())]
        managed = self.scope.managed is not None
        for kinds in sorts(self.kinds):
            if by_policies:
                wanted += gate(kinds, self.scope, owners=self.kinds)
                wanted += managed_gate(kinds, self.scope, owners=self.kinds) if managed else []
            # Beside webhooks they are for Jobs alone: operators write the fields of their kinds in good faith.
            if managed and _PLURALS[VALIDATING] in offered and (by_policies or is_job(kinds[0])):
                wanted += managed_keeping(kinds, self.scope)
        return wanted + (pod_policies(self.kinds, self.scope) if _PLURALS[VALIDATING] in offered else [])

    def _others(self) -> Iterator[Kind]:
        return (kind for kind in self.kinds if not are_written_for(kind))

    def _of_others(self, configuration: Object) -> Object:
        """The configuration without the webhooks of those kinds that policies gate."""
        others = [([kind.group], kind.plural) for kind in self._others()]
        rules = ((each, each["rules"][0]) for each in configuration["webhooks"])
        webhooks = [each for each, rule in rules if (rule["apiGroups"], rule["resources"][0]) in others]
        return {**configuration, "webhooks": webhooks}

    def _ours(self) -> Iterator[tuple[str, str]]:
        """Everything that any setting would write, and what versions up to 0.1 have written: (kind, name)."""
        yield "MutatingWebhookConfiguration", "sluice"
        yield "ValidatingWebhookConfiguration", "sluice"
        for name in ("jobs", "kinds"):
            gates, keeps = ("gate", "join.gate", "managed.gate"), ("keep", "managed.keep")
            for policy_kind, suffixes in ((MUTATING, gates), (VALIDATING, keeps)):
                for suffix in suffixes:
                    yield policy_kind, f"{name}.{suffix}.sluice.dev"
                    yield f"{policy_kind}Binding", f"{name}.{suffix}.sluice.dev"
        for name in (PODS_GATED, PODS_KEEP):
            yield VALIDATING, name
            yield f"{VALIDATING}Binding", name

    async def _remove(self, kind: str, name: str) -> bool:
        path = f"{_collection(kind)}/{name}"
        try:
            found = await self.client.get(path)
            if not is_ours(found):
                return False
            await self.client.delete(path, {"preconditions": {"uid": found["metadata"]["uid"]}})
        except NotFound:
            return False
        return True


def is_ours(obj: Object) -> bool:
    """Whether Sluice has made it, and not somebody who likes its name: our webhooks have our domain in theirs."""
    names = [webhook["name"] for webhook in obj.get("webhooks") or ()]
    return not names or any(name.endswith(".sluice.dev") for name in names)


def _collection(kind: str) -> str:
    return f"{_PATH}/{_PLURALS[kind]}"
