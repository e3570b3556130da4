"""Declared pod sets of a pod group, for clients that create its pods one role after the other.

One pod of the group, or each, has the annotation; a label on each pod names its pod set:

    sluice.dev/pod-group-pod-sets: |
      [{"name": "controller", "count": 1},
       {"name": "actor", "count": 2, "requests": {"cpu": "8", "memory": "64Gi"}, "nodeSelector": {"gpu": "h100"}}]

`requests` are those of one pod. Where they are omitted, those of the first pod of the set count, and the group waits
for this pod.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from admission.kinds import templates
from admission.kinds.common import NOTHING, first
from admission.kinds.limits import parse_amounts
from admission.model import names
from admission.model.errors import Misconfigured
from admission.model.quantity import to_amount
from admission.model.workload import PodSet, Toleration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from admission.kinds.base import Object
    from admission.kinds.limits import NamespaceContext

POD_SETS: Final = "sluice.dev/pod-group-pod-sets"
"""Annotation that declares the pod sets of a group."""
POD_SET: Final = "sluice.dev/pod-set-name"
"""Label that names a pod's pod set in its group."""
MOST_PODS: Final = 99_999
"""Maximum number of pods of one group."""
MOST_POD_SETS: Final = 32
"""Maximum number of pod sets that one group may declare."""
LONGEST_NAME: Final = 32
"""Maximum length of a name, in characters: shorter than computed names in groups without a declaration."""
_FIELDS: Final = {"name": str, "count": int, "requests": dict, "nodeSelector": dict, "tolerations": list}


@dataclass(frozen=True, slots=True)
class DeclaredPodSet:
    """Declaration of equal pods that a group will have."""

    name: str
    count: int
    requests: Mapping[str, int] | None
    """Requests of one pod; None: those of the first pod of the set."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


class Completed(NamedTuple):
    """Pod sets of a group, as far as they are known."""

    pod_sets: tuple[PodSet, ...]
    missing: tuple[str, ...]
    """Names of pod sets without declared requests and without a pod."""


def pod_set_named(pod: Object) -> str:
    """Return the pod set that a pod's label names; empty: none."""
    return first(pod["metadata"].get("labels"), (POD_SET,))


def declares(pod: Object) -> bool:
    """Whether a pod has the annotation that declares the group's pod sets."""
    return POD_SETS in (pod["metadata"].get("annotations") or NOTHING)


def declared_pod_sets(pod: Object) -> tuple[DeclaredPodSet, ...]:
    """Return the pod sets that a pod's annotation declares. Raises Misconfigured."""
    where = f"metadata.annotations[{POD_SETS}]"
    try:
        items = orjson.loads(pod["metadata"]["annotations"][POD_SETS])
    except orjson.JSONDecodeError as error:
        raise Misconfigured(f"{where}: is not valid JSON: {error}") from error
    if not isinstance(items, list) or not 0 < len(items) <= MOST_POD_SETS:
        raise Misconfigured(f"{where}: must be a list of 1 to {MOST_POD_SETS} pod sets with name, count and requests")
    found = tuple(_declared(item, f"{where}[{number}]") for number, item in enumerate(items))
    if len({each.name for each in found}) < len(found):
        raise Misconfigured(f"{where}: two pod sets have the same name")
    if sum(each.count for each in found) > MOST_PODS:
        raise Misconfigured(f"{where}: {MOST_PODS} pods are the most")
    return found


def _declared(item: Any, where: str) -> DeclaredPodSet:
    if not isinstance(item, dict):
        raise Misconfigured(f"{where}: must be an object with name, count and requests")
    for key, value in item.items():
        if key not in _FIELDS:
            raise Misconfigured(f"{where}.{key}: is not known; known are {', '.join(_FIELDS)}")
        if not isinstance(value, _FIELDS[key]) or isinstance(value, bool):
            raise Misconfigured(f"{where}.{key}: has the wrong type")
    name, count = item.get("name", ""), item.get("count", 0)
    if not names.is_dns_label(name) or len(name) > LONGEST_NAME:
        raise Misconfigured(
            f'{where}.name: must be lower-case letters, digits and "-", {LONGEST_NAME} characters at most'
        )
    if not 0 < count <= MOST_PODS:
        raise Misconfigured(f"{where}.count: must be a number of pods from 1 to {MOST_PODS}")
    requests = None
    if "requests" in item:
        if "pods" in item["requests"]:
            raise Misconfigured(f"{where}.requests.pods: is what a pod costs by itself: leave it out")
        amounts = parse_amounts(item["requests"], f"{where}.requests")
        requests = {resource: to_amount(resource, number) for resource, number in amounts.items()}
    selector = item.get("nodeSelector", {})
    if not all(isinstance(value, str) for value in selector.values()):
        raise Misconfigured(f"{where}.nodeSelector: its values must be texts")
    tolerations = item.get("tolerations", [])
    if not all(
        isinstance(each, dict) and all(isinstance(value, str) for value in each.values()) for each in tolerations
    ):
        raise Misconfigured(f"{where}.tolerations: must be a list of tolerations")
    return DeclaredPodSet(name, count, requests, selector, tuple(map(_toleration, tolerations)))


def _toleration(item: Mapping[str, str]) -> Toleration:
    return Toleration(
        item.get("key") or "", item.get("operator") or "Equal", item.get("value") or "", item.get("effect") or ""
    )


def completed(pod_sets: Iterable[DeclaredPodSet], pods: Sequence[Object], context: NamespaceContext) -> Completed:
    """Return the declared pod sets with what the existing pods add. Raises Misconfigured.

    Also raised for pods in none of the pod sets, and for pods that request more than theirs.
    """
    found, missing = [], []
    by_name: dict[str, list[Object]] = {each.name: [] for each in pod_sets}
    for pod in pods:
        name = pod_set_named(pod)
        if name not in by_name:
            raise Misconfigured(_unknown_pod_set(pod, name, by_name))
        by_name[name].append(pod)
    for each in pod_sets:
        seen = [templates.pod_set(each.name, pod, context, path="", count=each.count) for pod in by_name[each.name]]
        if each.requests is None and not seen:
            missing.append(each.name)
            continue
        pod_set = _pod_set(each, seen)
        found.append(pod_set)
        for pod, has in zip(by_name[each.name], seen, strict=True):
            if more := exceeding(has, pod_set):
                raise Misconfigured(
                    f"pod {pod['metadata']['name']} requests more {more} than pod set {each.name} of its group has"
                )
    return Completed(tuple(found), tuple(missing))


def _pod_set(each: DeclaredPodSet, seen: Sequence[PodSet]) -> PodSet:
    if not seen:
        assert each.requests is not None
        return PodSet(each.name, each.count, each.requests, None, each.node_selector, each.tolerations)
    model = seen[0]
    return PodSet(
        name=each.name,
        count=each.count,
        requests=model.requests if each.requests is None else each.requests,
        node_selector={**each.node_selector, **model.node_selector},
        tolerations=tuple(dict.fromkeys((*each.tolerations, *model.tolerations))),
        affinity=model.affinity,
        preferences=model.preferences,
        group=model.group,
        claims=model.claims,
    )


def exceeding(has: PodSet, may_have: PodSet) -> str:
    """Return the first resource of which a pod requests more than a pod of the set may; empty: none."""
    if more := Counter(has.claims) - Counter(may_have.claims):
        return f"devices, by the claim {next(iter(more)).name},"
    return next((name for name, amount in has.requests.items() if amount > may_have.requests.get(name, 0)), "")


def _unknown_pod_set(pod: Object, name: str, known: Iterable[str]) -> str:
    actual = f'is "{name}"' if name else "is missing"
    return (
        f"pod {pod['metadata']['name']} is in none of the pod sets that its group declares: set its label {POD_SET}, "
        f"which {actual}, to {' or '.join(known)}"
    )
