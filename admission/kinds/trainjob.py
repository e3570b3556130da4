"""Adapter for TrainJob of Kubeflow Trainer 2: its pods are those of the JobSet that Trainer creates for it.

Trainer creates that JobSet, from the TrainJob and its runtime, while the TrainJob is suspended, and updates it as long
as it is. So the pod sets are read from the last seen JobSet (`RENDERED`), and a start injects into the TrainJob, from
which Trainer updates the JobSet. The field for this has another name in each release, and the definition of each drops
the others: `podSpecOverrides` in 2.0, `podTemplateOverrides` in 2.1, `runtimePatches` since 2.2. Up to 2.1 it may be
changed only by a request that leaves the TrainJob suspended; so a start takes two requests.

A JobSet does not show from which version of the TrainJob it was created. One that has what the first request injected
was updated after it, and shows the pods that the second request will let run, unless the TrainJob has been edited once
more.

Source: Trainer v2.0.1 to v2.3.0, `pkg/runtime/framework/plugins/jobset/jobset.go` and the definitions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson

from admission.apimachinery.patches import json_patch
from admission.kinds import paths, templates
from admission.kinds.base import ONLY_WHOLE, RENDERED, WORKLOAD_UID
from admission.kinds.declared import DeclaredKind
from admission.kinds.dispatched import is_dispatched
from admission.kinds.patches import merged, pointer, same_generation
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.kinds.base import Object, Observed
    from admission.kinds.places import Place
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission

MANAGER: Final = "sluice.dev/admission"
"""Value of `manager` in Sluice's entries of `runtimePatches`."""
_FIELDS: Final = ("runtimePatches", "podTemplateOverrides", "podSpecOverrides")
_GIVEN: Final = "given"
"""Key in an `original`: by field, the entries that a start adds."""
_HAD: Final = "had"
"""Key in an `original`: the fields that were present before."""
_TEMPLATES: Final = "templates"
"""Key in an `original`: by pod set, what a start causes in its template (`put`), and what was there (`original`)."""
_ASKED: Final = "asked"
"""Key in an `original`: a digest of the TrainJob's fields that decide about its pods."""
_OF_JOB_SET: Final = {"Complete": "Completed", "Failed": "Failed"}
"""Conditions of an ended TrainJob, and those of its JobSet from which they come."""
_NOT_OF_PODS: Final = frozenset({"image", "command", "args", "env"})
"""Fields of `spec.trainer` that change neither the number of pods nor their requests."""

DOCUMENT: Final[dict[str, Any]] = {
    "group": "trainer.kubeflow.org",
    "kind": "TrainJob",
    "plural": "trainjobs",
    "versions": ["v1alpha1"],
    "suspend": "spec.suspend",
    "managedBy": {"path": "spec.managedBy", "value": "trainer.kubeflow.org/trainjob-controller"},
    "podSets": [
        {
            "path": f"{RENDERED}.spec.replicatedJobs[*]",
            "nameFrom": "name",
            "template": "template.spec.template",
            "replicas": "replicas",
            "parallelism": "template.spec.parallelism",
            "completions": "template.spec.completions",
            "ended": {"items": "status.jobsStatus[*]", "name": "name", "count": "succeeded"},
        }
    ],
    "active": [{"path": "status.jobsStatus[*].active", "above": 0}],
    "ready": [
        {
            "sum": ["status.jobsStatus[*].ready", "status.jobsStatus[*].succeeded"],
            "reaches": [f"{RENDERED}.spec.replicatedJobs[*].replicas"],
        }
    ],
    "succeeded": [{"condition": "Complete"}],
    "failed": [{"condition": "Failed"}],
    "children": [{"group": "jobset.x-k8s.io", "kind": "JobSet", "name": "{owner}"}],
}


@dataclass(frozen=True, slots=True)
class TrainJobKind(DeclaredKind):
    """Adapter for TrainJob. An object without `RENDERED` has no JobSet yet, or it is not known."""

    min_count_fault: ClassVar[str] = ONLY_WHOLE
    rendered_by: ClassVar[tuple[str, str] | None] = ("jobset.x-k8s.io", "JobSet")

    def observe(self, obj: Object) -> Observed:
        """Return the object's state; a new generation of the JobSet is a new generation, too."""
        seen = DeclaredKind.observe(self, obj)
        rendered: int = (obj.get(RENDERED) or {}).get("generation") or 0
        return replace(seen, generation=seen.generation * 2**20 + rendered)

    def places(self, obj: Object) -> list[Place]:
        """Return the JobSet's pod sets. Raises Misconfigured if there is no JobSet, or an outdated one."""
        if is_dispatched(self, obj):  # older Trainers run it nevertheless (kubeflow/trainer issue 3632)
            raise Misconfigured(
                "spec.managedBy: a TrainJob with this field cannot be sent to another cluster: Kubeflow Trainer either "
                "runs it here as well, or makes no JobSet here from which its pods could be counted; leave the field "
                "out, and it stays suspended here while its copy runs"
            )
        if obj.get(RENDERED) is None:
            raise Misconfigured(
                "spec.runtimeRef: Kubeflow Trainer has created no JobSet for it yet, from which its pods could be "
                "counted; if that lasts, see whether the runtime exists and Trainer runs"
            )
        found = DeclaredKind.places(self, obj)
        labels = ((place.template.get("metadata") or {}).get("labels") or {} for place in found)
        if not self._entries(obj) and any(WORKLOAD_UID in each for each in labels):
            raise Misconfigured("spec: its JobSet is still as its last start had it; Kubeflow Trainer is to update it")
        return found

    def copied_status(self, status: Mapping[str, Any], copy: Mapping[str, Any] | None) -> Object:
        """Return the status of its JobSet, from which Trainer makes that of the TrainJob.

        Trainer, up to 2.3, takes away the condition Failed that a JobSet does not have.
        """
        conditions = (each for each in (copy or {}).get("conditions") or () if each.get("status") == "True")
        ended = [{**each, "type": _OF_JOB_SET[each["type"]]} for each in conditions if each["type"] in _OF_JOB_SET]
        return {"conditions": ended, "terminalState": ended[0]["type"]} if ended else {}

    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """Return the faults in labels and annotations; the object alone does not show its pods."""
        return list(self.metadata_faults(obj))

    def limit(self, new: Object, old: Object) -> tuple[list[Object], str]:
        """Return an empty patch: Trainer updates the JobSet only during suspension, and then it is counted again."""
        return [], ""

    def templates(self, obj: Object) -> list[Object]:
        """Return the templates of the JobSet, merged with what a start injected for them."""
        found = []
        for place in self.places(obj):
            template = place.template
            for field, entry in self._entries(obj):
                template = merged(template, _template(field, entry, place.name))
            found.append(template)
        return found

    def start_patch(
        self,
        obj: Object,
        admission: Admission,
        flavors: Mapping[str, ResourceFlavor],
        updates: Sequence[PodSetUpdate] = (),
    ) -> tuple[list[Object], Object]:
        """Return a patch with the additions to each template, in the field of each release.

        `resume_patch` follows it.
        """
        assignments = {assignment.name: assignment for assignment in admission.pod_sets}
        whole: dict[str, Object] = {}
        injected: Object = {}
        for place in self.places(obj):
            if (assignment := assignments.get(place.name)) is None:
                raise Misconfigured(f'{place.path}: the pod set "{place.name}" is new since quota was reserved')
            own = templates.Addition("Sluice", {}, (), {WORKLOAD_UID: obj["metadata"]["uid"], **place.label})
            additions = templates.of_admission(assignment, flavors, updates, place.template, path=place.path)
            added = [*additions, own]
            put, original = templates.inject(place.template, added, path=place.path)
            injected[place.name] = {"put": put, "original": original}
            # The entry has all additions, even those that the JobSet happens to have: it may be about to change.
            tolerations = (place.template.get("spec") or {}).get("tolerations")
            bare = {"spec": {"tolerations": tolerations}} if tolerations else {}
            whole[place.name], _ = templates.inject(bare, added, path=place.path)
        entries = {field: _made(field, whole) for field in _FIELDS}
        had = [field for field in _FIELDS if field in obj["spec"]]
        patch = [
            {"op": "add", "path": pointer("spec", field), "value": [*(obj["spec"].get(field) or ()), *made]}
            for field, made in entries.items()
        ]
        original = {_GIVEN: entries, _HAD: had, _TEMPLATES: injected, _ASKED: _digest(obj["spec"])}
        return [*same_generation(obj), *patch], original

    def may_resume(self, obj: Object) -> bool:
        """Whether its JobSet has what a start injected; True if the JobSet is not known to the caller.

        Raises Misconfigured if the pods would stay gated.
        """
        if obj.get(RENDERED) is None:
            return True
        entries = self._entries(obj)
        if any(field == "podSpecOverrides" and entry.get("schedulingGates") for field, entry in entries):
            raise Misconfigured(
                "Kubeflow Trainer 2.0 has no field for annotations of pods, so that these can only be placed in one "
                "domain of a topology without hostnames: update it to 2.1 or later"
            )
        return all(
            _has(place.template, _template(field, entry, place.name))
            for place in DeclaredKind.places(self, obj)
            for field, entry in entries
        )

    def carries_start(self, obj: Object, original: Object) -> bool:
        """Whether all entries are present, in the field that the release has."""
        entries: Mapping[str, list[Object]] = original.get(_GIVEN) or {}
        return any(made and len(_indices(obj, field, made)) == len(made) for field, made in entries.items())

    def is_as_started(self, obj: Object, original: Object) -> bool:
        """Whether all entries are present; during suspension, also whether its fields of pods are unchanged.

        While it is suspended, Trainer applies changes of these fields to the JobSet.
        """
        if not original.get(_GIVEN):  # its copy was started, not itself
            return True
        if not self.carries_start(obj, original):
            return False
        asked: str | None = original.get(_ASKED)
        if asked is None or obj["spec"].get("suspend") is not True:
            return True
        return _digest(self._without(obj, original)["spec"]) == asked

    def restore_patch(self, obj: Object, original: Object) -> list[Object] | None:
        """Return the operations that remove the entries, and fields that are empty then and were absent before."""
        patch: list[Object] = []
        for field, made in (original.get(_GIVEN) or {}).items():
            indices = _indices(obj, field, made)
            if not indices:
                continue
            if len(indices) == len(obj["spec"][field]) and field not in original[_HAD]:
                patch.append({"op": "remove", "path": pointer("spec", field)})
            else:
                patch += [{"op": "remove", "path": pointer("spec", field, str(index))} for index in reversed(indices)]
        return [*same_generation(obj), *patch] if patch else None

    def restored(self, obj: Object, original: Object) -> Object:
        """Return the object after `restore_patch`, with the JobSet that Trainer will then update to."""
        after = self._without(obj, original)
        injected: Mapping[str, Any] = original.get(_TEMPLATES) or {}
        for found in paths.find(obj, (RENDERED, "spec", "replicatedJobs", paths.EACH)):
            keys = (*found.keys, "template", "spec", "template")
            template, record = paths.at(obj, keys), injected.get(found.value.get("name"))
            if record and (change := templates.restore(template or {}, record["original"], record["put"])):
                operation = {"op": "add", "path": pointer(*keys), "value": merged(template, change)}
                after = json_patch(after, [operation])
        return after

    def _without(self, obj: Object, original: Object) -> Object:
        """Return the object after `restore_patch`; the same one if that changes nothing."""
        patch = self.restore_patch(obj, original)
        without: Object = obj if patch is None else json_patch(obj, patch)
        return without

    def _entries(self, obj: Object) -> list[tuple[str, Object]]:
        """Return (field, entry) of each entry that a start added."""
        spec = obj["spec"]
        found = [(field, entry) for field in _FIELDS[:2] for entry in spec.get(field) or () if _is_ours(field, entry)]
        # In 2.0 entries do not show who added them; if neither other field has entries of Sluice, all of them count.
        return found or [("podSpecOverrides", entry) for entry in spec.get("podSpecOverrides") or ()]


def _made(field: str, whole: Mapping[str, Object]) -> list[Object]:
    """Return a release's entries for the additions to the template of each pod set."""
    if field == "runtimePatches":
        jobs = [{"name": name, "template": {"spec": {"template": wanted}}} for name, wanted in whole.items()]
        return [{"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}]
    return [
        {"targetJobs": [{"name": name}], **(wanted.get("spec", {}) if field == "podSpecOverrides" else wanted)}
        for name, wanted in whole.items()
    ]


def _template(field: str, entry: Object, name: str) -> Object:
    """Return an entry's additions to the template of a pod set, as a merge patch of the fields that a start injects."""
    if field == "runtimePatches":
        jobs = paths.at(entry, ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")) or ()
        job: Object = next((each for each in jobs if each.get("name") == name), {})
        template = paths.at(job, ("template", "spec", "template")) or {}
    elif name not in (each.get("name") for each in entry.get("targetJobs") or ()):
        return {}
    else:
        template = {"spec": entry} if field == "podSpecOverrides" else entry
    wanted = {"metadata": ("labels", "annotations"), "spec": ("nodeSelector", "tolerations")}
    return {
        part: {key: template[part][key] for key in keys if template[part].get(key)}
        for part, keys in wanted.items()
        if template.get(part)
    }


def _has(template: Object, wanted: Object) -> bool:
    """Whether a template has the labels and node selectors of a merge patch."""
    return all(
        wanted.get(part, {}).get(field, {}).items() <= ((template.get(part) or {}).get(field) or {}).items()
        for part, field in (("metadata", "labels"), ("spec", "nodeSelector"))
    )


def _digest(spec: Object) -> str:
    """Return a digest of all fields that may decide about pods, without what a start injects."""
    trainer = {key: value for key, value in (spec.get("trainer") or {}).items() if key not in _NOT_OF_PODS}
    rest = {key: value for key, value in spec.items() if key not in ("suspend", "managedBy", "trainer", *_FIELDS)}
    entries = {
        field: [{key: value for key, value in entry.items() if key != "time"} for entry in spec.get(field) or ()]
        for field in _FIELDS
    }
    return blake2b(orjson.dumps([trainer, rest, entries], option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()


def _is_ours(field: str, entry: Object) -> bool:
    if field == "runtimePatches":
        return entry.get("manager") == MANAGER
    return WORKLOAD_UID in ((entry.get("metadata") or {}).get("labels") or {})


def _indices(obj: Object, field: str, made: Sequence[Object]) -> list[int]:
    """Return the indices of these entries in a field.

    Trainer writes into each of `runtimePatches` when it was changed (`time`), which is ignored.
    """
    there = obj["spec"].get(field) or ()
    found = ({key: value for key, value in entry.items() if key != "time"} for entry in there)
    return [index for index, entry in enumerate(found) if entry in made]
