"""YuniKorn's queues: `queues.yaml`, by itself or in the ConfigMap `yunikorn-configs`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from admission.cli.commands.import_quotas.fields import Fields
from admission.cli.commands.import_quotas.quota_tree import RECLAIMS, Queue, with_own_root
from admission.cli.commands.import_quotas.system import Found, System
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
_CALLED: Final = {"vcore": "cpu"}
_LIMIT_LOST: Final = "users and groups have no limits of their own"
_ACCESS: Final = "who may submit and administer is decided by Kubernetes' RBAC"
_LOST: Final = {
    "adminacl": _ACCESS,
    "childtemplate": "queues are not made on demand; create a ClusterQueue for each",
    "maxapplications": "the number of workloads is not limited, their quota is",
    "submitacl": _ACCESS,
}
_PARTITION_LOST: Final = {
    "limits": _LIMIT_LOST,
    "nodesortpolicy": "pods are placed by the Kubernetes scheduler",
    "placementrules": "a Job names its LocalQueue by its label, or gets that named default in its namespace",
    "preemption": "is set for each ClusterQueue (spec.preemption)",
    "usergroupresolver": "groups come from Kubernetes' authentication",
}
_PROPERTIES_LOST: Final = {
    "application.sort.policy": "workloads go by priority, then by age",
    "application.sort.priority": "workloads go by priority, then by age",
    "preemption.delay": "what is borrowed may be reclaimed at once",
    "preemption.policy": "is set for each ClusterQueue (spec.preemption)",
    "priority.offset": "workloads have the priority of their class, whatever their queue",
    "priority.policy": "workloads have the priority of their class, whatever their queue",
    "quota.preemption.delay": "spec.overQuota of a ClusterQueue is the nearest",
}


def _read(documents: Iterable[Document], namespaces: Sequence[str]) -> Found:
    found = Found([])
    for source, body in _configurations(documents, found.skipped):
        configuration = Fields(body, subject=source)
        for partition in configuration.objects("partitions"):
            name = partition.text("name")
            if name.lower() != _PARTITION:
                skipped = "YuniKorn on Kubernetes has no other partition than default"
                found.skipped.append((clean(f"partition/{name or '-'}"), skipped))
                continue
            top = partition.objects("queues")
            notes = (*partition.losses(_PARTITION_LOST), *configuration.losses({}, ignored=("checksum",)))
            found.queues.extend(_tree(top, f"{source}: {partition.at('queues')}", namespaces, notes))
    return Found(with_own_root(found.queues, "yunikorn"), found.skipped)


def _configurations(
    documents: Iterable[Document], skipped: list[tuple[str, str]]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What has partitions: a document itself, or the text in a ConfigMap or in Helm's values."""
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
                message = f"a compressed {_KEY} is not read; give the file that it was made of"
                raise InvalidObject([("binaryData", message)], subject=document.source)
            skipped.append((clean(f"{str(body.get('kind') or 'document').lower()}"), f"has no {_KEY}"))
            continue
        if not isinstance(text, str):
            raise InvalidObject([(f"data[{_KEY}]", "must be a text")], subject=document.source)
        source = f"{document.source}: data[{_KEY}]"
        for inner in parse_documents(text, source=source):
            yield inner.source, inner.body


def _tree(top: list[Fields], title: str, namespaces: Sequence[str], notes: tuple[str, ...]) -> Iterator[Queue]:
    """All queues, with their paths as names; the root is there even if the file leaves it out. It gets the notes."""
    if len(top) == 1 and top[0].text("name").lower() == _ROOT:
        pending = [(top[0], "")]
    else:
        yield Queue(_ROOT, title, inner=True, notes=notes)
        pending = [(fields, _ROOT) for fields in reversed(top)]
    while pending:
        fields, parent = pending.pop()
        name, below = _name(fields, parent), fields.objects("queues")
        queue = _queue(fields, name, parent, namespaces, inner=bool(below) or name == _ROOT)
        yield queue if parent else replace(queue, notes=(*notes, *queue.notes))
        pending += [(child, name) for child in reversed(below)]


def _name(fields: Fields, parent: str) -> str:
    own = fields.text("name")
    part = re.sub(r"[_:#/@]+", "-", own.lower()).strip("-")
    name = f"{parent}.{part}" if parent else part
    if not part or "." in own or not is_dns_subdomain(name):
        fields.fail(
            "name", f'"{own}" is no name of a queue: use letters, digits, "-" and "_", and at most 253 in its path'
        )
    return name


def _queue(fields: Fields, name: str, parent: str, namespaces: Sequence[str], *, inner: bool) -> Queue:
    resources, properties = fields.object("resources"), fields.object("properties")
    guaranteed = resources.amounts("guaranteed", called=_CALLED)
    limit = resources.amounts("max", called=_CALLED, limits=True)
    empty_parent = fields.flag("parent", default=False) and not inner
    notes = [f"{fields.at(f'limits[{index}]')}: {_LIMIT_LOST}" for index, _ in enumerate(fields.objects("limits"))]
    notes += [*resources.losses({}), *properties.losses(_PROPERTIES_LOST), *fields.losses(_LOST)]
    if empty_parent:
        notes.append(
            f"{fields.at('parent')}: its queues are made on demand in YuniKorn; create a ClusterQueue for each"
        )
    if (own := fields.text("name").lower()) != name.rpartition(".")[2]:
        notes.append(f"{fields.at('name')}: {clean(own)} is called {name.rpartition('.')[2]} here")
    return Queue(
        name,
        f"{fields.subject}: {fields.at('name')}",
        parent,
        guaranteed=guaranteed,
        limit=limit,
        preemption=RECLAIMS,
        inner=inner or empty_parent,
        doors=tuple((namespace, name) for namespace in namespaces),
        notes=tuple(notes),
    )


SYSTEM: Final = System(
    "YuniKorn",
    "queues",
    "queues.yaml (nor a ConfigMap with it)",
    "kubectl -n yunikorn get configmap yunikorn-configs -o yaml",
    _read,
)
