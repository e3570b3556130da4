"""Import of YuniKorn's queues: `queues.yaml`, as a file of its own or in the ConfigMap `yunikorn-configs`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from admission.cli.commands.import_quotas.fields import Fields
from admission.cli.commands.import_quotas.quota_tree import RECLAIMS, Queue, with_renamed_root
from admission.cli.commands.import_quotas.system import FoundQuotas, System
from admission.model.errors import InvalidObject
from admission.model.names import is_dns_subdomain
from admission.model.reading import parse_documents
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from admission.model.manifests import Document

_KEY: Final = "queues.yaml"
_PARTITION: Final = "default"
_ROOT: Final = "root"
_ALIASES: Final = {"vcore": "cpu"}
_NO_USER_LIMITS: Final = "users and groups have no limits"
_RBAC: Final = "permissions to submit and administer are those of Kubernetes RBAC"
_NO_EQUIVALENT: Final = {
    "adminacl": _RBAC,
    "childtemplate": "queues are not created on demand; create a ClusterQueue for each",
    "maxapplications": "only quota is limited, not the number of workloads",
    "submitacl": _RBAC,
}
"""Field of a queue -> note."""
_NO_EQUIVALENT_IN_PARTITION: Final = {
    "limits": _NO_USER_LIMITS,
    "nodesortpolicy": "pods are placed by the Kubernetes scheduler",
    "placementrules": "a Job names its LocalQueue by a label, or gets the one named default in its namespace",
    "preemption": "is set for each ClusterQueue (spec.preemption)",
    "usergroupresolver": "groups come from Kubernetes authentication",
}
"""Field of a partition -> note."""
_NO_EQUIVALENT_IN_PROPERTIES: Final = {
    "application.sort.policy": "workloads are ordered by priority, then by age",
    "application.sort.priority": "workloads are ordered by priority, then by age",
    "preemption.delay": "borrowed quota may be reclaimed immediately",
    "preemption.policy": "is set for each ClusterQueue (spec.preemption)",
    "priority.offset": "workloads have the priority of their class in every queue",
    "priority.policy": "workloads have the priority of their class in every queue",
    "quota.preemption.delay": "the closest equivalent is spec.overQuota of a ClusterQueue",
}
"""Property of a queue -> note."""


def _read(documents: Iterable[Document], namespaces: Sequence[str]) -> FoundQuotas:
    """Read the queues of the partition `default`. Raises InvalidObject."""
    found = FoundQuotas([])
    for source, body in _configurations(documents, found.skipped):
        configuration = Fields(body, subject=source)
        for partition in configuration.objects("partitions"):
            name = partition.text("name")
            if name.lower() != _PARTITION:
                skipped = "YuniKorn on Kubernetes has only the partition default"
                found.skipped.append((clean(f"partition/{name or '-'}"), skipped))
                continue
            top = partition.objects("queues")
            notes = (*partition.unread(_NO_EQUIVALENT_IN_PARTITION), *configuration.unread({}, ignored=("checksum",)))
            found.queues.extend(_tree(top, f"{source}: {partition.at('queues')}", namespaces, notes))
    return FoundQuotas(with_renamed_root(found.queues, "yunikorn"), found.skipped)


def _configurations(
    documents: Iterable[Document], skipped: list[tuple[str, str]]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (source, configuration with partitions): a document itself, or the text in a ConfigMap or Helm's values.

    Other documents are added to `skipped`. Raises InvalidObject for a compressed or malformed text.
    """
    for document in documents:
        body = document.body
        if "partitions" in body:
            yield document.source, body
            continue
        data: Any = body.get("data") if body.get("kind") == "ConfigMap" else body
        text = data.get(_KEY) if isinstance(data, dict) else None
        if text is None:
            binary = body.get("binaryData")
            if isinstance(binary, dict) and any(str(key).startswith(_KEY) for key in binary):
                message = f"a compressed {_KEY} cannot be read; use the uncompressed file"
                raise InvalidObject([("binaryData", message)], subject=document.source)
            skipped.append((clean(f"{str(body.get('kind') or 'document').lower()}"), f"has no {_KEY}"))
            continue
        if not isinstance(text, str):
            raise InvalidObject([(f"data[{_KEY}]", "must be a string")], subject=document.source)
        source = f"{document.source}: data[{_KEY}]"
        for inner in parse_documents(text, source=source):
            yield inner.source, inner.body


def _tree(top: list[Fields], title: str, namespaces: Sequence[str], notes: tuple[str, ...]) -> Iterator[Queue]:
    """Yield all queues, parents first, named by their paths; a root is added if the file has none.

    `top` are the queues of a partition, `title` is that of an added root, and `notes` are attached to the root.
    """
    if len(top) == 1 and top[0].text("name").lower() == _ROOT:
        pending = [(top[0], "")]
    else:
        yield Queue(_ROOT, title, is_inner=True, notes=notes)
        pending = [(fields, _ROOT) for fields in reversed(top)]
    while pending:
        fields, parent = pending.pop()
        name, below = _name(fields, parent), fields.objects("queues")
        queue = _queue(fields, name, parent, namespaces, is_inner=bool(below) or name == _ROOT)
        yield queue if parent else replace(queue, notes=(*notes, *queue.notes))
        pending += [(child, name) for child in reversed(below)]


def _name(fields: Fields, parent: str) -> str:
    """Return the name of a queue here: its path, in lower case, with `-` for characters that Kubernetes forbids."""
    own = fields.text("name")
    part = re.sub(r"[_:#/@]+", "-", own.lower()).strip("-")
    name = f"{parent}.{part}" if parent else part
    if not part or "." in own or not is_dns_subdomain(name):
        fields.fail(
            "name",
            f'"{own}" is not a valid queue name: use letters, digits, "-" and "_"; its path has at most 253 characters',
        )
    return name


def _queue(fields: Fields, name: str, parent: str, namespaces: Sequence[str], *, is_inner: bool) -> Queue:
    """Read one queue. A queue with `parent: true` and no children becomes a Cohort, with a note."""
    resources, properties = fields.object("resources"), fields.object("properties")
    guaranteed = resources.amounts("guaranteed", aliases=_ALIASES)
    limit = resources.amounts("max", aliases=_ALIASES, limits=True)
    empty_parent = fields.flag("parent", default=False) and not is_inner
    notes = [f"{fields.at(f'limits[{index}]')}: {_NO_USER_LIMITS}" for index, _ in enumerate(fields.objects("limits"))]
    notes += [*resources.unread({}), *properties.unread(_NO_EQUIVALENT_IN_PROPERTIES), *fields.unread(_NO_EQUIVALENT)]
    if empty_parent:
        notes.append(f"{fields.at('parent')}: YuniKorn creates its queues on demand; create a ClusterQueue for each")
    if (own := fields.text("name").lower()) != name.rpartition(".")[2]:
        notes.append(f"{fields.at('name')}: {clean(own)} is renamed to {name.rpartition('.')[2]}")
    return Queue(
        name,
        f"{fields.subject}: {fields.at('name')}",
        parent,
        guaranteed=guaranteed,
        limit=limit,
        preemption=RECLAIMS,
        is_inner=is_inner or empty_parent,
        local_queues=tuple((namespace, name) for namespace in namespaces),
        notes=tuple(notes),
    )


SYSTEM: Final = System(
    "YuniKorn",
    "queues",
    "queues.yaml (or ConfigMap with it)",
    "kubectl -n yunikorn get configmap yunikorn-configs -o yaml",
    _read,
)
