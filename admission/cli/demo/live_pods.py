"""The watcher of the one promise that matters most: what pods are alive ask for no more than their quota.

It knows pods only, neither Jobs nor Sluice, and does its own sums; every check of quota from the API server's side (the
demo, storms, benchmarks) is this one. No I/O and no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from admission.model.quantity import amount, format_amount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Object: TypeAlias = dict[str, Any]
Amounts: TypeAlias = dict[str, int]

_SAID: Final = 5
"""So many violations are kept in words; beyond that only their number matters."""


class _Alive(NamedTuple):
    payer: str
    amounts: Amounts
    on_node: bool


def namespace_pays(pod: Object) -> str | None:
    """The payer of a pod where each namespace has a quota of its own."""
    namespace: str = pod["metadata"]["namespace"]
    return namespace


def is_gated(pod: Object) -> bool:
    """Whether it may not run yet, and holds nothing."""
    return bool(pod["spec"].get("schedulingGates"))


class LivePods:
    """Fed with each version of each pod in the order of one watch; answers at any time.

    A pod is alive from its creation until its phase is Succeeded or Failed or it is gone: also while it waits for a
    node or behind a scheduling gate, and while it is asked to end. `limits` says what each payer may have at most,
    `total` what all of them may have together; both name the resources that are counted.
    """

    def __init__(
        self,
        limits: Mapping[str, Mapping[str, int]],
        total: Mapping[str, int],
        *,
        payer: Callable[[Object], str | None] = namespace_pays,
    ) -> None:
        """`payer` says who pays for a pod, asked when it comes; pods of nobody in `limits` are left out."""
        self._limits, self._total, self._payer = limits, total, payer
        self._pods: dict[str, _Alive] = {}
        self.alive: dict[str, Amounts] = {who: dict.fromkeys(total, 0) for who in limits}
        """What the pods that are alive ask for, by payer."""
        self.on_nodes: dict[str, Amounts] = {who: dict.fromkeys(total, 0) for who in limits}
        """The part of it that has a node."""
        self.checks = 0
        self.broken = 0
        """How many checks failed."""
        self.violations: list[str] = []

    def pod(self, key: str, pod: Object | None, now: float) -> None:
        """The pod of this `namespace/name` is as `pod` says at `now` (seconds, for messages); None: it is gone."""
        before = self._pods.pop(key, None)
        if before is not None:
            self._add(before, -1)
        if pod is None or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return
        payer = self._payer(pod) if before is None else before.payer
        if payer is None or payer not in self._limits:
            return
        after = _Alive(payer, asked_by(pod["spec"], self._total), bool(pod["spec"].get("nodeName")))
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
        said = []
        for resource, total in self._total.items():
            own, limit = self.alive[payer][resource], self._limits[payer][resource]
            whole = sum(amounts[resource] for amounts in self.alive.values())
            for who, value, most in ((payer, own, limit), ("all teams", whole, total)):
                if value > most:
                    is_, may = format_amount(resource, value), format_amount(resource, most)
                    said.append(
                        f"{who}: pods ask for {is_} {resource}, at most {may} allowed, {now:.1f} s after the start"
                    )
        if said:
            self.broken += 1
            self.violations = (self.violations + said)[:_SAID]


def asked_by(pod_spec: Object, resources: Iterable[str]) -> Amounts:
    """What a pod with this spec asks for, as the scheduler reckons: at the worst moment, with overhead."""
    return {resource: _asked(pod_spec, resource) for resource in resources}


def _asked(spec: Object, resource: str) -> int:
    beside = peak = 0
    for container in spec.get("initContainers") or ():
        own = _request(container, resource)
        if container.get("restartPolicy") == "Always":  # a sidecar stays
            beside += own
            peak = max(peak, beside)
        else:
            peak = max(peak, beside + own)
    together = beside + sum(_request(container, resource) for container in spec["containers"])
    for_the_pod = (spec.get("resources") or {}).get("requests") or {}
    needed = amount(resource, for_the_pod[resource]) if resource in for_the_pod else max(peak, together)
    return needed + amount(resource, (spec.get("overhead") or {}).get(resource, "0"))


def _request(container: Object, resource: str) -> int:
    """What one container asks for; the API server has taken it from the limits where nothing was said."""
    requests = (container.get("resources") or {}).get("requests") or {}
    return amount(resource, requests.get(resource, "0"))
