"""Reconciler of the gate's objects in the cluster: webhook configuration, or admission policies and their bindings.

On a change from one to the other it first writes the new objects, and removes the old ones OVERLAP seconds later: new
objects do not take effect immediately in all API servers, and no Job must pass ungated in the meantime.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from admission.cluster.desired import WriteOutcome, reconcile
from admission.cluster.errors import BadAnswer, Forbidden, NotFound
from admission.model.errors import SluiceError
from webhooks.errors import PoliciesNotOffered
from webhooks.policies import (
    GATE_POLICIES,
    gate_policies,
    has_policies,
    is_job,
    managed_gate_policies,
    managed_keep_policies,
    policy_groups,
)
from webhooks.validating_policies import (
    MUTATING,
    NOT_QUEUED_POLICIES,
    PODS_GATED,
    PODS_KEEP,
    VALIDATING,
    not_queued_policies,
    pod_policies,
    scale_policies,
    scale_policy_names,
    scaled_versions,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator

    from admission.cluster.client import Client
    from admission.kinds.base import Kind, Object
    from webhooks.scope import Scope

log = logging.getLogger(__name__)

Mode: TypeAlias = Literal["webhooks", "policies", "auto"]

OVERLAP: Final = 5.0
"""Seconds that both gates exist during a change; many times the delay until a new policy takes effect."""
RESYNC_INTERVAL: Final = 60.0
"""Seconds between checks whether the gate's objects were changed, switched off or deleted by others."""

CONTESTED: Final = 3
"""Consecutive checks that find the gate changed, after which another writer is reported in the log."""

_CONTESTED_MESSAGE: Final = (
    "another client changed the gate after each of the last updates by Sluice, and Jobs may be refused: check for a "
    "replica of Sluice with different certificates, --webhook-url or kinds; replicas need the same settings, and share "
    "certificates by --certificate-secret"
)

_PATH: Final = "/apis/admissionregistration.k8s.io/v1"
_WEBHOOKS: Final = "MutatingWebhookConfiguration"
_PLURALS: Final = {
    _WEBHOOKS: "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
    MUTATING: "mutatingadmissionpolicies",
    f"{MUTATING}Binding": "mutatingadmissionpolicybindings",
    VALIDATING: "validatingadmissionpolicies",
    f"{VALIDATING}Binding": "validatingadmissionpolicybindings",
}


@dataclass(frozen=True, slots=True)
class GateReconciler:
    """Keeps the gate of one cluster as the settings require.

    `webhook` returns the desired webhook configuration; None: the API server could not reach a webhook. Objects are
    removed only while `is_leader` returns true, so that of replicas with different settings one alone removes objects.
    """

    client: Client
    mode: Mode
    kinds: tuple[Kind, ...]
    scope: Scope
    webhook: Callable[[], Object] | None
    is_leader: Callable[[], bool] = lambda: True
    off: tuple[Kind, ...] = ()
    """Kinds that Sluice knows, but does not queue here."""
    switched_off: set[str] = field(default_factory=set, init=False)
    """Objects that were switched off at the last check, for example `MutatingWebhookConfiguration sluice`."""
    unlimited: set[str] = field(default_factory=set, init=False)
    """Policies of scale subresources, and bindings, that the API server did not let Sluice write at the last check."""

    async def ensure(self) -> bool:
        """Write the desired objects; return whether any changed. Raises ClusterError, PoliciesNotOffered."""
        served = await self._served_resources()
        outcomes: dict[str, WriteOutcome] = {}
        for obj in self._desired(served):
            if obj["kind"] == _WEBHOOKS and (WriteOutcome.CHANGED in outcomes.values() or not self.is_leader()):
                obj = await self._with_former_kinds(obj)
            name = f"{obj['kind']} {obj['metadata']['name']}"
            try:
                outcomes[name] = await reconcile(self.client, _collection(obj["kind"]), obj, is_ours=is_ours)
            except Forbidden as error:
                if obj["metadata"]["name"] not in scale_policy_names():
                    raise
                if name not in self.unlimited:
                    log.warning("%s is not written, so that the scale subresource is not limited: %s", name, error)
                self.unlimited.add(name)
            else:
                self.unlimited.discard(name)
        self._log_switch({name for name, outcome in outcomes.items() if outcome is WriteOutcome.SWITCHED_OFF})
        return WriteOutcome.CHANGED in outcomes.values()

    async def _with_former_kinds(self, configuration: Object) -> Object:
        """Return the webhook configuration with the entries of kinds that it gates now, and policies from now on.

        These policies may not be in effect yet, so that for another OVERLAP seconds both have to gate the kinds.
        """
        complete = configuration if self.webhook is None else self.webhook()
        try:
            present = await self.client.get(f"{_collection(_WEBHOOKS)}/sluice")
        except NotFound:
            return configuration
        kept, known = ({each["name"] for each in obj["webhooks"]} for obj in (configuration, complete))
        former = {each["name"] for each in present.get("webhooks") or ()} & known - kept
        return complete if former else configuration

    def _log_switch(self, switched_off: set[str]) -> None:
        """Log which objects were switched off or on since the last check; `switched_off` are those that are off now."""
        if newly_off := switched_off - self.switched_off:
            log.warning(
                "switched off (`sluice gate off`) and left so: %s; Jobs with a queue label are created and run without "
                "Sluice until `sluice gate on`",
                ", ".join(sorted(newly_off)),
            )
        if on_again := self.switched_off - switched_off:
            log.warning("switched on again: %s; Jobs with a queue label are gated", ", ".join(sorted(on_again)))
        self.switched_off.clear()
        self.switched_off.update(switched_off)

    async def remove_obsolete(self) -> list[str]:
        """Remove Sluice's objects that are not desired; return their names.

        Call it only after `ensure` has found nothing to change. Raises ClusterError, PoliciesNotOffered.
        """
        served = await self._served_resources()
        desired = {(obj["kind"], obj["metadata"]["name"]) for obj in self._desired(served)}
        removed = []
        for kind, name in self._all_names() if desired else ():
            if (kind, name) not in desired and _PLURALS[kind] in served and await self._remove(kind, name):
                removed.append(f"{kind} {name}")
        return removed

    async def gates_by_policies(self) -> bool:
        """Whether this cluster is gated by policies. Raises ClusterError, PoliciesNotOffered."""
        return self._by_policies(await self._served_resources())

    async def registered_webhook(self) -> str:
        """Return the address of the webhook that the API server calls now; empty if it calls none. Raises ClusterError.

        The address is a URL, or a Service as `namespace/name`. Another instance of Sluice may have registered it.
        """
        called = await registered_client_config(self.client)
        if called is None:
            return ""
        service = called.get("service", {})
        return str(called.get("url") or f"{service.get('namespace')}/{service.get('name')}")

    async def has_registered_policies(self) -> bool:
        """Whether the API server has a policy that gates Jobs, or other kinds, now. Raises ClusterError."""
        for name in GATE_POLICIES:
            try:
                await self.client.get(f"{_collection(MUTATING)}/{name}")
            except NotFound:
                continue
            return True
        return False

    async def run(
        self, *, refresh: Callable[[], Awaitable[None]], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Reconcile the gate periodically until cancelled, after a `refresh` of the certificates. Errors are logged."""
        pause, changes = OVERLAP, 0
        while True:
            await sleep(pause)
            pause = RESYNC_INTERVAL
            try:
                await refresh()
                changes = changes + 1 if await self.ensure() else 0
                if changes:
                    log.info("the gate was updated")
                    pause = OVERLAP
                    if changes == CONTESTED:
                        log.warning(_CONTESTED_MESSAGE)
                elif self.is_leader() and (removed := await self.remove_obsolete()):
                    log.info("removed objects that the gate does not use any more: %s", ", ".join(removed))
            except SluiceError as error:
                log.warning("the gate could not be checked: %s", error)
            except Exception:  # a defect, or a malformed answer of the API server, must not end the process
                log.exception("the gate could not be checked, and will be checked again")

    async def _served_resources(self) -> frozenset[str]:
        """Return the names of the resources of admissionregistration.k8s.io/v1 that the API server serves.

        Also of those kinds, if they are queued, whose scale subresource has a policy.
        """
        served = await self._resources_at(_PATH)
        for version in scaled_versions(self.kinds):
            with suppress(NotFound):
                served |= await self._resources_at(f"/apis/{version}")
        return served

    async def _resources_at(self, path: str) -> frozenset[str]:
        found = await self.client.get(path)
        try:
            return frozenset(resource["name"] for resource in found["resources"])
        except (KeyError, TypeError) as error:
            raise BadAnswer(f"the API server's list of resources at {path} cannot be read ({error!r})") from error

    def _by_policies(self, served: Iterable[str]) -> bool:
        if self.mode == "webhooks" or (self.mode == "auto" and _PLURALS[MUTATING] not in served):
            return False
        if _PLURALS[MUTATING] not in served:
            raise PoliciesNotOffered(
                "this API server has no MutatingAdmissionPolicy of admissionregistration.k8s.io/v1, which is part of "
                "Kubernetes from 1.36 on: set admission to auto or webhooks"
            )
        return True

    def _desired(self, served: Collection[str]) -> list[Object]:
        """Return all objects that the gate consists of; the last one is the webhook configuration, if it has one."""
        by_policies = self._by_policies(served)
        if not by_policies and self.webhook is None:
            return []
        webhooks = [] if self.webhook is None else [self.webhook()]
        if by_policies:
            webhooks = [self._without_policy_kinds(each) for each in webhooks if any(self._kinds_without_policies())]
        desired: list[Object] = []
        managed = self.scope.managed is not None
        for kinds in policy_groups(self.kinds):
            if by_policies:
                desired += gate_policies(kinds, self.scope, owners=self.kinds)
                desired += managed_gate_policies(kinds, self.scope, owners=self.kinds) if managed else []
            # Together with webhooks only for Jobs: operators write these fields of their own kinds in good faith.
            if managed and _PLURALS[VALIDATING] in served and (by_policies or is_job(kinds[0])):
                desired += managed_keep_policies(kinds, self.scope)
        if _PLURALS[VALIDATING] in served:
            desired += pod_policies(self.kinds, self.scope)
            desired += not_queued_policies(self.kinds, self.off, self.scope)
            desired += scale_policies(self.kinds, self.scope, served)
        return [*desired, *webhooks]

    def _kinds_without_policies(self) -> Iterator[Kind]:
        """Yield the kinds that are gated by webhooks in either mode."""
        return (kind for kind in self.kinds if not has_policies(kind))

    def _without_policy_kinds(self, configuration: Object) -> Object:
        """Return the webhook configuration without the entries of kinds that policies gate."""
        kept = [([kind.group], kind.plural) for kind in self._kinds_without_policies()]
        rules = ((each, each["rules"][0]) for each in configuration["webhooks"])
        webhooks = [each for each, rule in rules if (rule["apiGroups"], rule["resources"][0]) in kept]
        return {**configuration, "webhooks": webhooks}

    def _all_names(self) -> Iterator[tuple[str, str]]:
        """Yield (kind, name) of all objects that any settings create, and that versions up to 0.1 created."""
        yield "MutatingWebhookConfiguration", "sluice"
        yield "ValidatingWebhookConfiguration", "sluice"
        for name in ("jobs", "kinds"):
            gates, keeps = ("gate", "join.gate", "managed.gate"), ("keep", "managed.keep")
            for policy_kind, suffixes in ((MUTATING, gates), (VALIDATING, keeps)):
                for suffix in suffixes:
                    yield policy_kind, f"{name}.{suffix}.sluice.dev"
                    yield f"{policy_kind}Binding", f"{name}.{suffix}.sluice.dev"
        for name in (PODS_GATED, PODS_KEEP, *NOT_QUEUED_POLICIES, *scale_policy_names()):
            yield VALIDATING, name
            yield f"{VALIDATING}Binding", name

    async def _remove(self, kind: str, name: str) -> bool:
        """Delete an object of Sluice; return whether there was one."""
        path = f"{_collection(kind)}/{name}"
        try:
            found = await self.client.get(path)
            if not is_ours(found):
                return False
            await self.client.delete(path, {"preconditions": {"uid": found["metadata"]["uid"]}})
        except NotFound:
            return False
        return True


async def registered_client_config(client: Client) -> Object | None:
    """Return the `clientConfig` of the webhooks that the API server calls now; None: it calls none.

    Raises ClusterError.
    """
    try:
        found = await client.get(f"{_collection(_WEBHOOKS)}/sluice")
    except NotFound:
        return None
    called: list[Object] = [webhook["clientConfig"] for webhook in found.get("webhooks") or ()]
    return called[0] if called else None


def is_ours(obj: Object) -> bool:
    """Whether Sluice created an object: its webhooks have Sluice's domain. Foreign objects may have the same name."""
    names = [webhook["name"] for webhook in obj.get("webhooks") or ()]
    return not names or any(name.endswith(".sluice.dev") for name in names)


def _collection(kind: str) -> str:
    return f"{_PATH}/{_PLURALS[kind]}"
