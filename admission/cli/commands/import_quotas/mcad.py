"""MCAD's QuotaSubtrees (`quota.codeflare.dev`): parts of trees, put together by the names of nodes and a label."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.cli.commands.import_quotas.quota_tree import RECLAIMS, Queue
from admission.cli.commands.import_quotas.system import Found, System, objects_of
from admission.model.names import is_dns_subdomain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from admission.cli.commands.import_quotas.fields import Fields
    from admission.model.manifests import Document

GROUP: Final = "quota.codeflare.dev"
_TREE: Final = "tree"
_LOST: Final = {
    "disabled": "has no equivalent; MCAD itself does not read it",
    "path": "is written by MCAD, and left out",
    "namespace": "quota is not bound to a namespace",
    "parentNamespace": "quota is not bound to a namespace",
}


def _read(documents: Iterable[Document], namespaces: Sequence[str]) -> Found:
    found = Found([])
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
        for node, queue in zip(members, _bounded(members, trees=len(nodes)), strict=True):
            # AppWrappers name the node by a label that is called after the tree.
            door = node.name if names[node.name] == 1 else queue.name
            found.queues.append(replace(queue, doors=tuple((namespace, door) for namespace in namespaces)))
    return found


class _Node(NamedTuple):
    """A node of a tree."""

    name: str
    queue: Queue
    hard: bool
    """Whether its requests are its limit."""


def _node(child: Fields, tree: str, parent: str, spec: Fields) -> _Node:
    name, quotas = child.text("name"), child.object("quotas")
    prefix = tree.lower().replace("_", "-")
    called = f"{prefix}.{name}"
    if not is_dns_subdomain(called):
        child.fail("name", f'"{name}" is no name: use lower-case letters, digits, "-" and "."')
    hard = quotas.flag("hardLimit", default=False) or not parent
    queue = Queue(
        called,
        f"{child.subject}: {child.at('name')}",
        f"{prefix}.{parent}" if parent else "",
        spec.at("parent"),
        guaranteed=quotas.amounts("requests"),
        preemption=RECLAIMS,
        notes=(*quotas.losses(_LOST), *child.losses(_LOST), *spec.losses(_LOST)),
    )
    return _Node(name, queue, hard)


def _bounded(tree: list[_Node], *, trees: int) -> Iterator[Queue]:
    """The nodes with their limits: what a limit does not name, of what others do, is limited to nothing."""
    several = f"a workload has one queue, and so holds quota in one of the {trees} trees only"
    nothing = {resource: 0 for node in tree for resource in node.queue.guaranteed}
    for _, queue, hard in tree:
        limit = nothing | dict(queue.guaranteed) if hard else {}
        notes = queue.notes if queue.parent or trees == 1 else (several, *queue.notes)
        yield replace(queue, limit=limit, notes=notes)


SYSTEM: Final = System(
    "MCAD",
    "QuotaSubtrees",
    "QuotaSubtree of quota.codeflare.dev",
    "kubectl get quotasubtrees.quota.codeflare.dev -A -o yaml",
    _read,
)
