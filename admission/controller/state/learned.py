"""Requests that were learned from pods, because their template does not show them (`PodSet.learned`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.model.workload import PodSet


def with_learned(pod_sets: tuple[PodSet, ...], former: Iterable[PodSet]) -> tuple[PodSet, ...]:
    """Return pod sets read from an object with what was learned from the pods of its `former` ones.

    A pod set whose template requests something else since then is read anew.
    """
    known = {each.name: each for each in former if each.learned}
    if not known:
        return pod_sets
    return tuple(
        with_more(each, had.learned) if (had := known.get(each.name)) and _has_same_template(each, had) else each
        for each in pod_sets
    )


def with_more(pod_set: PodSet, more: Mapping[str, int]) -> PodSet:
    """Return a pod set each of whose pods requests more than its template, as was learned from its pods."""
    if not more:
        return pod_set
    requests, learned = dict(pod_set.requests), dict(pod_set.learned)
    for name, amount in more.items():
        requests[name] = requests.get(name, 0) + amount
        learned[name] = learned.get(name, 0) + amount
    # A resource that its user has not asked for keeps it out of no ClusterQueue.
    new = {*pod_set.optional, *(more.keys() - pod_set.requests.keys())}
    return replace(pod_set, requests=requests, learned=learned, optional=tuple(sorted(new)))


def _has_same_template(pod_set: PodSet, former: PodSet) -> bool:
    template = {name: amount - former.learned.get(name, 0) for name, amount in former.requests.items()}
    return {name: amount for name, amount in template.items() if amount} == {
        name: amount for name, amount in pod_set.requests.items() if amount
    }
