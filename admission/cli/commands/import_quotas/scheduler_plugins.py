"""The ElasticQuotas of scheduler-plugins (`scheduling.x-k8s.io`): each is that of its namespace, and none is above."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.cli.commands.import_quotas.quota_tree import PREEMPTS, Queue
from admission.cli.commands.import_quotas.system import Found, System, objects_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.model.manifests import Document

GROUP: Final = "scheduling.x-k8s.io"
_TOP: Final = "elastic-quotas"
_DEFAULT: Final = "default"
"""The LocalQueue of Jobs without a queue label: there, pods name no quota."""


def _read(documents: Iterable[Document], namespaces: Sequence[str]) -> Found:
    found = Found([])
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
                doors=((namespace, _DEFAULT),),
                notes=tuple(spec.losses({})),
            )
        )
    if found.queues:
        found.queues.insert(0, Queue(_TOP, "the ElasticQuotas", inner=True))
    return found


SYSTEM: Final = System(
    "scheduler-plugins",
    "ElasticQuotas",
    "ElasticQuota of scheduling.x-k8s.io",
    "kubectl get elasticquotas.scheduling.x-k8s.io -A -o yaml",
    _read,
)
