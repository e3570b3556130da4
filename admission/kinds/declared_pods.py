"""The pods that a group will have, said before they are there: for those that a client makes role after role.

One pod of the group, or each, has the annotation; each pod says by a label which of the pod sets it is in:

    sluice.dev/pod-group-pod-sets: |
      [{"name": "controller", "count": 1},
       {"name": "actor", "count": 2, "requests": {"cpu": "8", "memory": "64Gi"}, "nodeSelector": {"gpu": "h100"}}]

`requests` are of one pod. Where they are left out, those of the first pod of the set count, for which the group waits.
"""

from __future__ import annotations

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
"""The annotation that says which pods a group will have."""
POD_SET: Final = "sluice.dev/pod-set-name"
"""The label that says in which of its group's pod sets a pod is."""
MOST_PODS: Final = 99_999
MOST_POD_SETS: Final = 32
LONGEST_NAME: Final = 32
"""Characters: less than what is computed for pods of groups that declare nothing has."""
_FIELDS: Final = {"name": str, "count": int, "requests": dict, "nodeSelector": dict, "tolerations": list}
_TOLERATION: Final = ("key", "operator", "value", "effect")


@dataclass(frozen=True, slots=True)
class DeclaredPodSet:
    """So many equal pods that a group will have."""

    name: str
    count: int
    requests: Mapping[str, int] | None
    """Of one pod; None: what the first pod of the set requests."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


class Completed(NamedTuple):
    """The pod sets of a group as far as they are known."""

    pod_sets: tuple[PodSet, ...]
    missing: tuple[str, ...]
    """Those of which neither requests nor a pod are known."""


def pod_set_named(pod: Object) -> str:
    """The pod set that a pod says it is in; empty: it does not say."""
    return first(pod["metadata"].get("labels"), (POD_SET,))


def declares(pod: Object) -> bool:
    """Whether a pod says which pods its group will have."""
    return POD_SETS in (pod["metadata"].get("annotations") or NOTHING)


def declared_pod_sets(pod: Object) -> tuple[DeclaredPodSet, ...]:
    """What it says of them. Raises Misconfigured."""
    where = f"metadata.annotations[{POD_SETS}]"
    try:
        items = orjson.loads(pod["metadata"]["annotations"][POD_SETS])
    except orjson.JSONDecodeError as error:
        raise Misconfigured(f"{where}: is no JSON: {error}") from error
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
    given = {key: item[key] for key in _TOLERATION if item.get(key)}
    return Toleration(**given)


def completed(pod_sets: Iterable[DeclaredPodSet], pods: Sequence[Object], context: NamespaceContext) -> Completed:
    """What quota is asked for, of which some pods are there. Raises Misconfigured, also for pods that do not belong."""
    found, missing = [], []
    by_name: dict[str, list[Object]] = {each.name: [] for each in pod_sets}
    for pod in pods:
        name = pod_set_named(pod)
        if name not in by_name:
            raise Misconfigured(_stranger(pod, name, by_name))
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
        group=model.group,
    )


def exceeding(has: PodSet, may_have: PodSet) -> str:
    """The first resource of which a pod requests more than one of a pod set may; empty: it fits."""
    return next((name for name, amount in has.requests.items() if amount > may_have.requests.get(name, 0)), "")


def _stranger(pod: Object, named: str, known: Iterable[str]) -> str:
    says = f'says "{named}"' if named else "says nothing"
    return (
        f"pod {pod['metadata']['name']} is in none of the pod sets that its group declares: set its label {POD_SET}, "
        f"which {says}, to {' or '.join(known)}"
    )
