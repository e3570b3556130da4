"""Import of MCAD's QuotaSubtrees (`quota.codeflare.dev`): parts of trees, joined by a label and the names of nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.cli.commands.import_quotas.quota_tree import RECLAIMS, Queue
from admission.cli.commands.import_quotas.system import FoundQuotas, System, objects_of
from admission.model.names import is_dns_subdomain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from admission.cli.commands.import_quotas.fields import Fields
    from admission.model.manifests import Document

GROUP: Final = "quota.codeflare.dev"
_TREE: Final = "tree"
_NO_EQUIVALENT: Final = {
    "disabled": "has no equivalent; MCAD itself does not read it",
    "path": "is written by MCAD, and left out",
    "namespace": "quota is not bound to a namespace",
    "parentNamespace": "quota is not bound to a namespace",
}
"""Field -> note."""


def _read(documents: Iterable[Document], namespaces: Sequence[str]) -> FoundQuotas:
    """Read the QuotaSubtrees of all trees. Raises InvalidObject."""
    found = FoundQuotas([])
    nodes: dict[str, list[_Node]] = {}
    for fields in objects_of(documents, GROUP, "QuotaSubtree", found.skipped):
        labels, spec = fields.object("metadata").object("labels"), fields.object("spec")
        tree = labels.text(_TREE)
        if not tree:
            labels.fail(_TREE, "is required: it names the tree that this is a part of")
        parent = spec.text("parent")
        nodes.setdefault(tree, []).extend(_node(child, tree, parent, spec) for child in spec.objects("children"))
    names = Counter(node.name for members in nodes.values() for node in members)
    for members in nodes.values():
        for node, queue in zip(members, _with_limits(members, trees=len(nodes)), strict=True):
            # AppWrappers have a label with the name of their node, which can then be used as the queue label.
            local_queue = node.name if names[node.name] == 1 else queue.name
            local_queues = tuple((namespace, local_queue) for namespace in namespaces)
            found.queues.append(replace(queue, local_queues=local_queues))
    return found


class _Node(NamedTuple):
    """A node of a tree."""

    name: str
    queue: Queue
    hard: bool
    """Whether its requests are its limit, too."""


def _node(child: Fields, tree: str, parent: str, spec: Fields) -> _Node:
    """Read a child of a subtree; its queue is named by the tree and the node, since trees may share node names."""
    name, quotas = child.text("name"), child.object("quotas")
    prefix = tree.lower().replace("_", "-")
    queue_name = f"{prefix}.{name}"
    if not is_dns_subdomain(queue_name):
        child.fail("name", f'"{name}" is not a valid name: use lower-case letters, digits, "-" and "."')
    hard = quotas.flag("hardLimit", default=False) or not parent
    queue = Queue(
        queue_name,
        f"{child.subject}: {child.at('name')}",
        f"{prefix}.{parent}" if parent else "",
        spec.at("parent"),
        guaranteed=quotas.amounts("requests"),
        preemption=RECLAIMS,
        notes=(*quotas.unread(_NO_EQUIVALENT), *child.unread(_NO_EQUIVALENT), *spec.unread(_NO_EQUIVALENT)),
    )
    return _Node(name, queue, hard)


def _with_limits(tree: list[_Node], *, trees: int) -> Iterator[Queue]:
    """Yield the queues with their limits. A hard limit is 0 for resources that only other nodes of the tree name.

    `trees` is the number of all trees: with several, the roots get a note.
    """
    several = f"a workload has one queue, and so holds quota in one of the {trees} trees only"
    zero = {resource: 0 for node in tree for resource in node.queue.guaranteed}
    for _, queue, hard in tree:
        limit = zero | dict(queue.guaranteed) if hard else {}
        notes = queue.notes if queue.parent or trees == 1 else (several, *queue.notes)
        yield replace(queue, limit=limit, notes=notes)


SYSTEM: Final = System(
    "MCAD",
    "QuotaSubtrees",
    "QuotaSubtree of quota.codeflare.dev",
    "kubectl get quotasubtrees.quota.codeflare.dev -A -o yaml",
    _read,
)
