"""Adapters for Kubernetes kinds that can be queued, one per kind, and their registry."""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from admission.kinds.base import Conventions, Kind, Object, Observed, Outcome
from admission.kinds.builtin_forms import builtin_forms
from admission.kinds.declared import DeclaredKind
from admission.kinds.deployment import DeploymentKind
from admission.kinds.form import Form
from admission.kinds.form_parser import parse_form
from admission.kinds.group_sizes import size_kinds
from admission.kinds.job import JobKind
from admission.kinds.leaderworkerset import LeaderWorkerSetKind
from admission.kinds.limits import NamespaceContext
from admission.kinds.mcad import LEGACY
from admission.kinds.pod import PodKind
from admission.kinds.pod_group import PodGroupKind
from admission.kinds.registry import Kinds
from admission.kinds.shapes import check_metadata
from admission.kinds.statefulset import StatefulSetKind
from admission.kinds.trainjob import TrainJobKind
from admission.kinds.volcano import VolcanoJobKind
from admission.model.errors import InvalidObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from admission.kinds.grouped import GroupedKind

__all__ = [
    "APP_WRAPPER",
    "BATCH_JOB",
    "BY_LABEL",
    "GROUPED",
    "JOB_SET",
    "LABELLED",
    "MCAD",
    "TRAIN_JOB",
    "Conventions",
    "DeclaredKind",
    "Form",
    "JobKind",
    "Kind",
    "Kinds",
    "NamespaceContext",
    "Object",
    "Observed",
    "Outcome",
    "all_kinds",
    "check_metadata",
    "described",
    "enabled",
    "frameworks_known",
    "parse_form",
]

BATCH_JOB: Final = "batch/job"
"""Name of batch/v1 Job in the setting `integrations.frameworks`, as in Kueue's configuration."""
JOB_SET: Final = "jobset.x-k8s.io/jobset"
APP_WRAPPER: Final = "workload.codeflare.dev/appwrapper"
MCAD: Final = "mcad.ibm.com/appwrapper"
"""AppWrappers of MCAD, in both API groups that it has had."""
TRAIN_JOB: Final = "trainer.kubeflow.org/trainjob"
_VOLCANO_JOB: Final = "batch.volcano.sh/job"
_BUILT_IN: Final[dict[str, Callable[[Conventions], Kind]]] = {BATCH_JOB: JobKind, "pod": PodKind}
"""Kinds that are part of Kubernetes, by their names in Kueue's configuration."""
GROUPED: Final[dict[str, type[GroupedKind]]] = {
    "statefulset": StatefulSetKind,
    _VOLCANO_JOB: VolcanoJobKind,
    "leaderworkerset.x-k8s.io/leaderworkerset": LeaderWorkerSetKind,
}
"""Kinds whose pods are queued in groups: they require the kind `pod`, too."""


LABELLED: Final[dict[str, Callable[[Conventions], Kind]]] = {"deployment": DeploymentKind}
"""Kinds whose pods are queued one by one, by labels that the webhook adds: they require the kind `pod`, too."""
BY_LABEL: Final = ("pod", *GROUPED, *LABELLED)
"""Kinds that most objects of a cluster are of: unless they are named, only those with a queue label are queued."""


def frameworks_known() -> tuple[str, ...]:
    """Return the names of all kinds that Sluice supports, as in the setting `integrations.frameworks`."""
    return (*_BUILT_IN, *builtin_forms(), *GROUPED, *LABELLED)


def enabled(frameworks: Sequence[str] | None, exclude: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the kinds that are queued: all that Sluice supports (None), or `frameworks`.

    Left out are those to `exclude`, and kinds that cannot be queued without these: without `pod` the kinds that are
    queued by their pods, without JobSets TrainJobs, whose pod sets are read from these.

    Raises InvalidObject for unknown names.
    """
    known, named = frameworks_known(), {"frameworks": frameworks or (), "exclude": exclude}
    if faults := [
        (f"{field}[{number}]", _unknown(name))
        for field, names in named.items()
        for number, name in enumerate(names)
        if name not in known
    ]:
        raise InvalidObject(faults)
    excluded = {*exclude}
    excluded |= {*GROUPED, *LABELLED} if "pod" in excluded else set()
    excluded |= {TRAIN_JOB} if JOB_SET in excluded else set()
    return tuple(name for name in (known if frameworks is None else frameworks) if name not in excluded)


def described(name: str) -> DeclaredKind | None:
    """Return the kind of a built-in form, by its name in the setting; None: no form describes a kind of that name."""
    form = builtin_forms().get(name)
    return None if form is None else _of_form(name, Conventions(), form)


def _of_form(name: str, conventions: Conventions, form: Form) -> DeclaredKind:
    return (TrainJobKind if name == TRAIN_JOB else DeclaredKind)(conventions, form)


def _unknown(name: str) -> str:
    """Return the message for a name that is not the name of a kind."""
    by_kind = [known for known in frameworks_known() if known.rpartition("/")[2] == name.lower()]
    near = by_kind or difflib.get_close_matches(name, frameworks_known(), n=1)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(frameworks_known())}"
    return f'"{name}" is no kind that Sluice knows; {hint}'


def all_kinds(
    *,
    kueue_labels: bool = True,
    excluded_namespaces: Iterable[str] = ("kube-system",),
    frameworks: Iterable[str] = (BATCH_JOB,),
    own: Iterable[Form] = (),
    queue_labels: Iterable[str] = (),
    priority_labels: Iterable[str] = (),
    group_labels: Iterable[str] = (),
    by_label: Iterable[str] = (),
) -> Kinds:
    """Return the registry of the enabled kinds.

    `kueue_labels`: whether Kueue's labels are read beside Sluice's. `queue_labels`, `priority_labels`: labels of other
    systems, read where none of these is present. `group_labels`: labels or annotations of other systems that name a
    pod's group. `frameworks`: names such as `jobset.x-k8s.io/jobset`. `own`: forms of user-defined kinds. In
    `excluded_namespaces` nothing is queued. `by_label`: kinds of which only labels name the queue; of Volcano Jobs
    their `spec.queue` does as well, otherwise. Raises InvalidObject for an unknown name.
    """
    conventions = Conventions.of(
        kueue_labels=kueue_labels,
        excluded_namespaces=excluded_namespaces,
        queue_labels=queue_labels,
        priority_labels=priority_labels,
        group_labels=group_labels,
        named_by=(kind.named_by for kind in GROUPED.values() if kind.named_by),
    )
    known, frameworks, by_label = builtin_forms(), tuple(frameworks), tuple(by_label)

    def kind_of(name: str) -> Kind:
        if name == _VOLCANO_JOB:
            return VolcanoJobKind(conventions, reads_queue_field=_VOLCANO_JOB not in by_label)
        if make := _BUILT_IN.get(name) or GROUPED.get(name) or LABELLED.get(name):
            return make(conventions)
        form = known[name]
        if MCAD in frameworks and form.gate is not None and LEGACY not in form.versions:
            form = replace(form, versions=(*form.versions, LEGACY))
        return _of_form(name, conventions, form)

    every = frameworks_known()
    if faults := [(f"frameworks[{at}]", _unknown(name)) for at, name in enumerate(frameworks) if name not in every]:
        raise InvalidObject(faults)
    kinds = [kind_of(name) for name in frameworks if name not in LABELLED]
    kinds += [DeclaredKind(conventions, form) for form in own]
    labelled = [kind_of(name) for name in frameworks if name in LABELLED]
    off = [kind_of(name) for name in every if name not in frameworks]
    if not any(isinstance(kind, PodKind) for kind in kinds):
        return Kinds(kinds, labelled=labelled, off=off)
    return Kinds(kinds, [PodGroupKind(conventions)], size_kinds(conventions), labelled, off)
