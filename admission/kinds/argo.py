"""Pod set and faults of Argo Workflow, beyond what `Form` describes.

A Workflow does not show which pods run at a time, only how many at most. Its one pod set is the peak:
`spec.parallelism` pods, each with the largest requests of any of its templates. Argo reads `spec.nodeSelector`,
`spec.tolerations` and `spec.podMetadata` again for each pod that it creates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission.kinds import paths
from admission.kinds.base import POD_SET, WORKLOAD_UID
from admission.kinds.common import quote
from admission.kinds.places import Place, as_template
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.kinds.base import Object

METADATA: Final = "podMetadata"
"""Field beside `nodeSelector` and `tolerations` with the labels and annotations of all pods."""
MOST_PODS: Final = ("spec", "parallelism")
"""Keys of the field with the maximum number of pods at a time."""
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
"""Fields of a template that add pods, or containers, whose requests are not known here."""
_IN_PLACE_OF_THE_WHOLE: Final = (("nodeSelector",), ("tolerations",), ("affinity", "nodeAffinity"))
"""Fields of a template that replace those of the Workflow, where flavors are assigned and a start injects."""
_REFERENCE: Final = "its pods are not in the Workflow itself: write the template into the Workflow"


def places(obj: Object) -> list[Place]:
    """Return the peak as one pod set. Raises Misconfigured if it is not bounded."""
    spec = obj["spec"]
    parallelism = paths.count(obj, MOST_PODS, 0)
    if not parallelism:
        raise Misconfigured(
            "spec.parallelism: is missing or 0; without a maximum of pods at a time its pods cannot be counted"
        )
    template = as_template(spec, metadata=METADATA)
    containers = [
        {"name": f"template-{number}", "resources": each.get("resources") or {}}
        for number, each in enumerate(_containers(spec))
    ]
    # As init containers, which run one after the other: a pod is counted with the largest of them, as a peak is here.
    pod = {**template.get("spec", {}), "initContainers": containers, "containers": [{"name": "main"}]}
    pod |= {"affinity": spec["affinity"]} if spec.get("affinity") else {}
    pod |= {"priorityClassName": spec["podPriorityClassName"]} if spec.get("podPriorityClassName") else {}
    return [
        Place("workflow", "spec.templates", {**template, "spec": pod}, parallelism, ("spec",), flat=True,
              takes_gates=False, metadata=METADATA, count_fields=(MOST_PODS,), reducible=MOST_PODS)
    ]  # fmt: skip


def faults(obj: Object) -> list[tuple[str, str]]:
    """Return faults: pods that are not known before they are created, or on which an injection has no effect."""
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
            yield f"{path}.{field}", "its requests cannot be counted: have its pods queued one by one instead"
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
    """Yield (path, template): the defaults, all templates, and those that are inline in a step."""
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
