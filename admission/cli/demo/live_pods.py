"""Independent check that the requests of all live pods never exceed quota.

It uses pods only, neither Jobs nor data of Sluice. Demo, chaos tests and benchmarks share this check. No I/O and no
clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from admission.model.quantity import amount, format_amount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Object: TypeAlias = dict[str, Any]
Amounts: TypeAlias = dict[str, int]

_MAX_MESSAGES: Final = 5
"""Number of violations that are kept as messages; further ones are only counted."""


class _Alive(NamedTuple):
    payer: str
    amounts: Amounts
    on_node: bool


def namespace_pays(pod: Object) -> str | None:
    """Return the namespace of a pod as its payer, for plans in which each namespace has its own quota."""
    namespace: str = pod["metadata"]["namespace"]
    return namespace


def is_gated(pod: Object) -> bool:
    """Whether a pod has a scheduling gate, so that it cannot run and holds no quota."""
    return bool(pod["spec"].get("schedulingGates"))


class LivePods:
    """Sums of the requests of live pods, updated with each version of each pod in the order of one watch.

    A pod is alive from its creation until its phase is Succeeded or Failed or it is deleted, including the time in
    which it waits for a node, has a scheduling gate, or terminates. `limits` is the quota of each payer by resource,
    `total` that of all payers together; only the resources in them are counted.
    """

    def __init__(
        self,
        limits: Mapping[str, Mapping[str, int]],
        total: Mapping[str, int],
        *,
        payer: Callable[[Object], str | None] = namespace_pays,
    ) -> None:
        """`payer` returns the payer of a new pod, whose quota it uses; pods without a payer in `limits` are ignored."""
        self._limits, self._total, self._payer = limits, total, payer
        self._pods: dict[str, _Alive] = {}
        self.alive: dict[str, Amounts] = {who: dict.fromkeys(total, 0) for who in limits}
        """Requests of live pods, by payer and resource."""
        self.on_nodes: dict[str, Amounts] = {who: dict.fromkeys(total, 0) for who in limits}
        """Requests of live pods that are bound to a node, by payer and resource."""
        self.checks = 0
        """Number of checks: one for each new pod, and for each change of a pod's requests."""
        self.broken = 0
        """Number of failed checks."""
        self.violations: list[str] = []
        """Messages of the first failed checks."""

    def pod(self, key: str, pod: Object | None, now: float) -> None:
        """Update the pod of key `namespace/name`; None if it was deleted. `now` is in seconds, for messages."""
        before = self._pods.pop(key, None)
        if before is not None:
            self._add(before, -1)
        if pod is None or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return
        payer = self._payer(pod) if before is None else before.payer
        if payer is None or payer not in self._limits:
            return
        after = _Alive(payer, requests_of(pod["spec"], self._total), bool(pod["spec"].get("nodeName")))
        self._pods[key] = after
        self._add(after, 1)
        if before is None or after.amounts != before.amounts:
            self._check(payer, now)

    def _add(self, pod: _Alive, sign: int) -> None:
        for resource, value in pod.amounts.items():
            self.alive[pod.payer][resource] += sign * value
            if pod.on_node:
                self.on_nodes[pod.payer][resource] += sign * value

    def _check(self, payer: str, now: float) -> None:
        self.checks += 1
        messages = []
        for resource, total in self._total.items():
            own, limit = self.alive[payer][resource], self._limits[payer][resource]
            whole = sum(amounts[resource] for amounts in self.alive.values())
            for who, value, most in ((payer, own, limit), ("all teams", whole, total)):
                if value > most:
                    requested, allowed = format_amount(resource, value), format_amount(resource, most)
                    request = f"{who}: pods request {requested} {resource}"
                    messages.append(f"{request}, at most {allowed} allowed, {now:.1f} s after the start")
        if messages:
            self.broken += 1
            self.violations = (self.violations + messages)[:_MAX_MESSAGES]


def requests_of(pod_spec: Object, resources: Iterable[str]) -> Amounts:
    """Return the effective requests of a pod as the scheduler computes them, with init containers and overhead."""
    return {resource: _request_of_pod(pod_spec, resource) for resource in resources}


def _request_of_pod(spec: Object, resource: str) -> int:
    sidecars = peak = 0
    for container in spec.get("initContainers") or ():
        own = _request(container, resource)
        if container.get("restartPolicy") == "Always":  # a sidecar keeps running
            sidecars += own
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + own)
    together = sidecars + sum(_request(container, resource) for container in spec["containers"])
    for_the_pod = (spec.get("resources") or {}).get("requests") or {}
    needed = amount(resource, for_the_pod[resource]) if resource in for_the_pod else max(peak, together)
    return needed + amount(resource, (spec.get("overhead") or {}).get(resource, "0"))


def _request(container: Object, resource: str) -> int:
    """Return the request of a container; the API server has defaulted missing requests to the limits."""
    requests = (container.get("resources") or {}).get("requests") or {}
    return amount(resource, requests.get(resource, "0"))
