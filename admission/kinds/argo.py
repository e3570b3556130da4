"""What paths cannot say of an Argo Workflow: which pods it has at a time is not in it, only how many at most.

Its one pod set is the peak: `spec.parallelism` pods, each with the most that any of its templates asks for. It reads
`spec.nodeSelector`, `spec.tolerations` and `spec.podMetadata` anew for each pod that it makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission.kinds import paths
from admission.kinds.base import POD_SET
from admission.kinds.common import quote
from admission.kinds.declared import WORKLOAD_UID
from admission.kinds.places import Place, as_template
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.kinds.base import Object

METADATA: Final = "podMetadata"
"""The field beside `nodeSelector` and `tolerations` that has the labels and annotations of all pods."""
MOST_PODS: Final = ("spec", "parallelism")
"""The field that says how many pods run at a time at most."""
_MAIN: Final = ("container", "script")
_ALSO_OF_THE_WHOLE: Final = ("podSpecPatch", "podResources", "resourceClaims")
_UNCOUNTED: Final = (
    "sidecars",
    "containerSet",
    "initContainers",
    "data",
    "resource",
    "plugin",
    "http",
    *_ALSO_OF_THE_WHOLE,
)
"""Fields of a template by which it has pods, or parts of pods, whose requests are not known here."""
_IN_PLACE_OF_THE_WHOLE: Final = (("nodeSelector",), ("tolerations",), ("affinity", "nodeAffinity"))
"""Of a template: what replaces the same of the Workflow, by which a flavor is chosen, and where a start writes it."""
_REFERENCE: Final = "its pods are not in the Workflow itself: write the template into the Workflow"


def places(obj: Object) -> list[Place]:
    """The peak. Raises Misconfigured where it is not bounded."""
    spec = obj["spec"]
    parallelism = paths.count(obj, MOST_PODS, 0)
    if not parallelism:
        raise Misconfigured(
            "spec.parallelism: is missing or 0; without the most pods that run at a time nothing can be counted"
        )
    template = as_template(spec, metadata=METADATA)
    containers = [
        {"name": f"template-{number}", "resources": each.get("resources") or {}}
        for number, each in enumerate(_containers(spec))
    ]
    # Of containers that run one after the other a pod is counted with the most, as here of pods.
    pod = {**template.get("spec", {}), "initContainers": containers, "containers": [{"name": "main"}]}
    pod |= {"affinity": spec["affinity"]} if spec.get("affinity") else {}
    pod |= {"priorityClassName": spec["podPriorityClassName"]} if spec.get("podPriorityClassName") else {}
    return [
        Place("workflow", "spec.templates", {**template, "spec": pod}, parallelism, ("spec",), flat=True,
              metadata=METADATA, numbers=(MOST_PODS,), lowered=MOST_PODS)
    ]  # fmt: skip


def faults(obj: Object) -> list[tuple[str, str]]:
    """What has pods that are not known before they are made, or that do not go where a start has the others go."""
    spec = obj["spec"]
    found = [
        (f"spec.{field}", f"its pods are not in the Workflow itself: {help_}")
        for field, help_ in (
            ("workflowTemplateRef", "write its templates into the Workflow"),
            *((field, "write what it says into the templates") for field in _ALSO_OF_THE_WHOLE),
        )
        if spec.get(field)
    ]
    found += _faults_of_hooks("spec", spec)
    for path, template in _templates(spec):
        found += _faults_of_template(path, template)
    return found


def _faults_of_template(path: str, template: Object) -> Iterator[tuple[str, str]]:
    for field in _UNCOUNTED:
        if template.get(field):
            yield f"{path}.{field}", "what this asks for cannot be counted: have its pods queued one by one instead"
    for keys in _IN_PLACE_OF_THE_WHOLE:
        if paths.at(template, keys):
            field = ".".join(keys)
            yield f"{path}.{field}", f"is to be the same for all pods, as quota is: write it into spec.{field}"
    for label in (WORKLOAD_UID, POD_SET):
        if label in (paths.at(template, ("metadata", "labels")) or {}):
            yield f"{path}.metadata.labels[{label}]", "is written by Sluice alone: remove it"
    for step in _steps(template):
        if step.get("templateRef"):
            yield f"{path}.templateRef", _REFERENCE
        yield from _faults_of_hooks(path, step)


def _faults_of_hooks(path: str, step: Object) -> Iterator[tuple[str, str]]:
    for name, hook in (step.get("hooks") or {}).items():
        if hook.get("templateRef"):
            yield f"{path}.hooks[{quote(str(name))}].templateRef", _REFERENCE


def _templates(spec: Object) -> Iterator[tuple[str, Object]]:
    """Each with its path; what is said of all, and what is written into a step, too."""
    yield "spec.templateDefaults", spec.get("templateDefaults") or {}
    for number, template in enumerate(spec.get("templates") or ()):
        yield from _and_inline(f"spec.templates[{number}]", template)


def _and_inline(path: str, template: Object) -> Iterator[tuple[str, Object]]:
    yield path, template
    for step in _steps(template):
        if inline := step.get("inline"):
            yield from _and_inline(f"{path}.inline", inline)


def _containers(spec: Object) -> Iterator[Object]:
    for _, template in _templates(spec):
        yield from (template[field] for field in _MAIN if template.get(field))


def _steps(template: Object) -> Iterator[dict[str, Any]]:
    for group in template.get("steps") or ():
        yield from group if isinstance(group, list) else (group.get("steps") or ())
    yield from (template.get("dag") or {}).get("tasks") or ()
