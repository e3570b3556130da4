"""Import of Volcano's Queues (`scheduling.volcano.sh`, all versions): a tree by `spec.parent` or by an annotation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.cli.commands.import_quotas.quota_tree import PREEMPTS, Queue, with_renamed_root
from admission.cli.commands.import_quotas.system import FoundQuotas, System, objects_of
from admission.model.names import is_dns_subdomain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.cli.commands.import_quotas.fields import Fields
    from admission.model.manifests import Document

GROUP: Final = "scheduling.volcano.sh"
_ROOT: Final = "root"
_HIERARCHY: Final = "volcano.sh/hierarchy"
_WEIGHTS: Final = "volcano.sh/hierarchy-weights"
_MAX_WEIGHT: Final = 65535
_NO_EQUIVALENT: Final = {
    "affinity": "a group of nodes is a ResourceFlavor in Sluice; create one with the labels of these nodes",
    "extendClusters": "Jobs run in this cluster only",
    "priority": "queues have no priorities; the closest equivalent is the weight for fair sharing",
    "type": "has no equivalent",
}
"""Field of a Queue's spec -> note."""


def _read(documents: Iterable[Document], namespaces: Sequence[str]) -> FoundQuotas:
    """Read the Queues, with the root and the inner queues that hierarchy annotations imply. Raises InvalidObject."""
    found = FoundQuotas([])
    implied: dict[str, Queue] = {}
    for fields in objects_of(documents, GROUP, "Queue", found.skipped):
        queue = _queue(fields, namespaces, implied)
        found.queues.append(queue)
    defined = {queue.name for queue in found.queues}
    if found.queues and _ROOT not in defined:
        found.queues.insert(0, Queue(_ROOT, 'Queue "root"', is_inner=True))
    found.queues.extend(queue for name, queue in implied.items() if name not in defined)
    return FoundQuotas(with_renamed_root(found.queues, "volcano"), found.skipped)


def _queue(fields: Fields, namespaces: Sequence[str], implied: dict[str, Queue]) -> Queue:
    """Read a Queue; inner queues that its hierarchy annotation implies are added to `implied`."""
    metadata, spec = fields.object("metadata"), fields.object("spec")
    name = metadata.text("name")
    parent, weight = spec.text("parent"), _weight(spec)
    if name == _ROOT:
        parent = ""
    elif not parent:
        parent, weight = _by_annotation(metadata.object("annotations"), implied, weight)
    guaranteed, deserved = spec.object("guarantee").amounts("resource"), spec.amounts("deserved")
    limit = spec.amounts("capability", limits=True)
    notes = []
    if not spec.flag("reclaimable", default=True):
        notes.append(
            f"{spec.at('reclaimable')}: quota that it borrows can be reclaimed nevertheless; to avoid that, "
            "set reclaimWithinCohort: Never in the other ClusterQueues, or borrowingLimit: 0 in this one"
        )
    strict = spec.text("dequeueStrategy") == "fifo"
    closed = fields.object("status").text("state") in ("Closed", "Closing")
    notes += spec.unread(_NO_EQUIVALENT)
    return Queue(
        name,
        fields.subject,
        parent,
        spec.at("parent"),
        guaranteed={key: max(guaranteed.get(key, 0), deserved.get(key, 0)) for key in (*deserved, *guaranteed)},
        limit=limit,
        not_lent=guaranteed,
        weight=weight,
        preemption=PREEMPTS,
        strict=strict,
        is_stopped=closed,
        is_inner=name == _ROOT,
        local_queues=tuple((namespace, name) for namespace in namespaces),
        notes=tuple(notes),
    )


def _weight(spec: Fields) -> str:
    """Return the weight of a Queue; empty: not set. Raises InvalidObject."""
    weight = spec.number("weight")
    if not 0 <= weight <= _MAX_WEIGHT or weight != int(weight):
        spec.fail("weight", f"must be a whole number from 1 to {_MAX_WEIGHT}, but is {weight:g}")
    return str(int(weight)) if weight else ""


def _by_annotation(annotations: Fields, implied: dict[str, Queue], weight: str) -> tuple[str, str]:
    """Return parent and weight by the annotations, such as `root/eng/prod` with the weights `1/2/8`.

    The queues between root and the last step are added to `implied`. Without the annotation the parent is the root.
    """
    path = annotations.text(_HIERARCHY)
    if not path:
        return _ROOT, weight
    steps, weights = path.split("/"), (annotations.text(_WEIGHTS) or "/".join(["1"] * len(path.split("/")))).split("/")
    if steps[0] != _ROOT or len(steps) < 2 or not all(is_dns_subdomain(step) for step in steps):
        annotations.fail(f"[{_HIERARCHY}]", f'must be a path such as root/eng/prod, but is "{path}"')
    if len(weights) != len(steps) or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in weights):
        annotations.fail(f"[{_WEIGHTS}]", f"must be one whole number for each step of {path}, with / between them")
    above = _ROOT
    for depth in range(1, len(steps) - 1):
        name = ".".join(steps[: depth + 1])
        implied.setdefault(
            name, Queue(name, f'Queue "{name}"', above, f"[{_HIERARCHY}]", weight=weights[depth], is_inner=True)
        )
        above = name
    return above, weights[-1]


SYSTEM: Final = System(
    "Volcano", "Queues", "Queue of scheduling.volcano.sh", "kubectl get queues.scheduling.volcano.sh -o yaml", _read
)
