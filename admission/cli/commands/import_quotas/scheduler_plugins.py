"""Import of scheduler-plugins' ElasticQuotas (`scheduling.x-k8s.io`): a flat list, with one for each namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.cli.commands.import_quotas.quota_tree import PREEMPTS, Queue
from admission.cli.commands.import_quotas.system import FoundQuotas, System, objects_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.model.manifests import Document

GROUP: Final = "scheduling.x-k8s.io"
_TOP: Final = "elastic-quotas"
_DEFAULT: Final = "default"
"""Name of the LocalQueues: that of Jobs without a queue label, since pods of scheduler-plugins do not name a quota."""


def _read(documents: Iterable[Document], namespaces: Sequence[str]) -> FoundQuotas:
    """Read the ElasticQuotas, under a common top queue that bounds them by the capacity. `namespaces` are ignored."""
    found = FoundQuotas([])
    for fields in objects_of(documents, GROUP, "ElasticQuota", found.skipped):
        metadata, spec = fields.object("metadata"), fields.object("spec")
        namespace = metadata.text("namespace") or _DEFAULT
        found.queues.append(
            Queue(
                namespace,
                fields.subject,
                _TOP,
                guaranteed=spec.amounts("min"),
                limit=spec.amounts("max", limits=True),
                preemption=PREEMPTS,
                only_namespace=namespace,
                local_queues=((namespace, _DEFAULT),),
                notes=tuple(spec.unread({})),
            )
        )
    if found.queues:
        found.queues.insert(0, Queue(_TOP, "the ElasticQuotas", is_inner=True))
    return found


SYSTEM: Final = System(
    "scheduler-plugins",
    "ElasticQuotas",
    "ElasticQuota of scheduling.x-k8s.io",
    "kubectl get elasticquotas.scheduling.x-k8s.io -A -o yaml",
    _read,
)
