"""Resource requests of a pod as they will be once the API server has admitted it, computed from its template.

Quota must cover what the pod will request, which its template does not show: defaulting, LimitRanges, sidecars,
pod-level resources and RuntimeClass overhead change it. The order is that of Kubernetes 1.36: API defaulting
(`SetDefaults_Pod` in pkg/apis/core/v1/defaults.go), then the LimitRanger and RuntimeClass admission plugins, then the
sum that the scheduler computes (`PodRequests` in component-helpers/resource).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from admission.kinds.limits import Amounts, parse_amounts, show
from admission.model.errors import Misconfigured
from admission.model.quantity import to_amount
from admission.model.workload import ClaimReference

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.kinds.limits import LimitRule, NamespaceContext

_HUGEPAGES: Final = "hugepages-"
_ZERO: Final = Fraction(0)
_CLAIM_NAME: Final = "resourceClaimName"
_TEMPLATE_NAME: Final = "resourceClaimTemplateName"


@dataclass(slots=True)
class _Container:
    path: str
    requests: Amounts
    limits: Amounts
    sidecar: bool = False
    limit_sources: dict[str, str] = field(default_factory=dict)
    """By resource: text that names the LimitRange whose default a limit is."""

    def apply_defaults(self, rule: LimitRule) -> None:
        for resource, number in rule.default.items():
            if resource not in self.limits:
                self.limits[resource] = number
                self.limit_sources[resource] = f' that LimitRange "{rule.source}" gives by default'
        self.requests = {**rule.default_request, **self.requests}


def pod_requests(spec: Mapping[str, Any], context: NamespaceContext, *, path: str) -> dict[str, int]:
    """Return the requests of one pod of this template, without the countable resource `pods`.

    `path`: path of the pod spec in its object, for messages. Raises Misconfigured if the pod would be rejected.
    """
    containers, inits, pod = _checked(spec, path)
    _default_pod_level(pod, containers, inits)
    for container in (*containers, *inits):
        for rule in context.limit_rules:
            if rule.type == "Container":
                container.apply_defaults(rule)
    for container in (*containers, *inits):
        _check_order(container)
    _check_limit_ranges(containers, inits, pod, context)
    total = _aggregate(containers, inits)
    total.update((resource, number) for resource, number in pod.requests.items() if _is_pod_level(resource))
    for resource, number in _overhead(spec, context, path).items():
        total[resource] = total.get(resource, 0) + number
    return {resource: to_amount(resource, number) for resource, number in total.items()}


def check_resources(spec: Mapping[str, Any], *, path: str) -> None:
    """Raise Misconfigured for faults in a pod spec's resources that do not depend on the namespace."""
    _checked(spec, path)


def claims(spec: Mapping[str, Any], *, path: str) -> tuple[ClaimReference, ...]:
    """Return the entries of `resourceClaims`. Raises Misconfigured for one that names nothing, or two things."""
    if not (entries := spec.get("resourceClaims")):
        return ()
    if not isinstance(entries, list):
        raise Misconfigured(f"{path}.resourceClaims: must be a list")
    found = []
    for number, entry in enumerate(entries):
        by_field = entry if isinstance(entry, dict) else {}
        names = [(by_field.get(field), field == _TEMPLATE_NAME) for field in (_CLAIM_NAME, _TEMPLATE_NAME)]
        named = [ClaimReference(name, is_template) for name, is_template in names if name]
        if len(named) != 1 or not isinstance(named[0].name, str):
            raise Misconfigured(f"{path}.resourceClaims[{number}]: must have either {_CLAIM_NAME} or {_TEMPLATE_NAME}")
        found.append(named[0])
    return tuple(found)


def _checked(spec: Mapping[str, Any], path: str) -> tuple[list[_Container], list[_Container], _Container]:
    """Return what `_declared` does. Raises Misconfigured as `check_resources` does."""
    claims(spec, path=path)
    containers, inits, pod = _declared(spec, path)
    for container in (*containers, *inits, pod):
        _check_order(container)
    return containers, inits, pod


def _declared(spec: Mapping[str, Any], path: str) -> tuple[list[_Container], list[_Container], _Container]:
    """Return containers, init containers and the pod itself as written; missing requests are taken from limits."""
    containers = [_container(item, f"{path}.containers[{i}]") for i, item in enumerate(spec.get("containers") or ())]
    inits = [_container(item, f"{path}.initContainers[{i}]") for i, item in enumerate(spec.get("initContainers") or ())]
    resources = spec.get("resources") or {}
    pod = _Container(
        path,
        parse_amounts(resources.get("requests"), f"{path}.resources.requests"),
        parse_amounts(resources.get("limits"), f"{path}.resources.limits"),
    )
    return containers, inits, pod


def _container(item: Mapping[str, Any], path: str) -> _Container:
    resources = item.get("resources") or {}
    limits = parse_amounts(resources.get("limits"), f"{path}.resources.limits")
    requests = {**limits, **parse_amounts(resources.get("requests"), f"{path}.resources.requests")}
    return _Container(path, requests, limits, sidecar=item.get("restartPolicy") == "Always")


def _default_pod_level(pod: _Container, containers: Iterable[_Container], inits: Iterable[_Container]) -> None:
    """Apply the defaults of pod-level resources (`defaultHugePagePodLimits` and `defaultPodRequests`)."""
    if pod.limits or pod.requests:
        for resource, number in _aggregate(containers, inits, limits=True).items():
            if resource.startswith(_HUGEPAGES) and resource not in pod.requests:
                pod.limits.setdefault(resource, number)
    if not pod.limits:
        return
    for resource, number in _aggregate(containers, inits).items():
        if resource in {"cpu", "memory"}:
            pod.requests.setdefault(resource, number)
    for resource, number in pod.limits.items():
        pod.requests.setdefault(resource, number)


def _aggregate(containers: Iterable[_Container], inits: Iterable[_Container], *, limits: bool = False) -> Amounts:
    """Return the peak: all containers with the sidecars, or one init container with the sidecars before it."""
    peak: Amounts = {}
    sidecars: Amounts = {}
    for init in inits:
        own = init.limits if limits else init.requests
        if init.sidecar:
            sidecars = _sum(sidecars, own)
            peak = _maximum(peak, sidecars)
        else:
            peak = _maximum(peak, _sum(sidecars, own))
    main = sidecars
    for container in containers:
        main = _sum(main, container.limits if limits else container.requests)
    return _maximum(peak, main)


def _overhead(spec: Mapping[str, Any], context: NamespaceContext, path: str) -> Amounts:
    overhead = spec.get("overhead")
    if name := spec.get("runtimeClassName"):
        found = context.runtime_classes.get(name)
        if found is None:
            raise Misconfigured(
                f'{path}.runtimeClassName: there is no RuntimeClass "{name}" in the cluster: name another one, or have '
                "it created"
            )
        if overhead is None:
            overhead = (found.get("overhead") or {}).get("podFixed")
    return parse_amounts(overhead, f"{path}.overhead")


def _check_order(container: _Container) -> None:
    for resource, limit in container.limits.items():
        request = container.requests.get(resource)
        if request is not None and request > limit:
            raise Misconfigured(
                f"{container.path}.resources: the {resource} request of {show(resource, request)} is more than "
                f"the limit of {show(resource, limit)}{container.limit_sources.get(resource, '')}; "
                "the pod would be refused"
            )


def _check_limit_ranges(
    containers: list[_Container], inits: list[_Container], pod: _Container, context: NamespaceContext
) -> None:
    for rule in context.limit_rules:
        if rule.type == "Container":
            for container in (*containers, *inits):
                rule.check(container.path, container.requests, container.limits)
        else:
            requests = {**_aggregate(containers, inits), **pod.requests}
            rule.check(pod.path, requests, {**_aggregate(containers, inits, limits=True), **pod.limits})


def _is_pod_level(resource: str) -> bool:
    return resource in {"cpu", "memory"} or resource.startswith(_HUGEPAGES)


def _sum(one: Amounts, other: Amounts) -> Amounts:
    return {resource: one.get(resource, _ZERO) + other.get(resource, _ZERO) for resource in (*one, *other)}


def _maximum(one: Amounts, other: Amounts) -> Amounts:
    return {resource: max(one.get(resource, _ZERO), other.get(resource, _ZERO)) for resource in (*one, *other)}
