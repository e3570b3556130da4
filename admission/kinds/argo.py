"""What paths cannot say of an Argo Workflow: which pods it has at a time is not in it, only how many at most.

Its one pod set is the peak: `spec.parallelism` pods, each with the most that any of its templates asks for. It reads
`spec.nodeSelector`, `spec.tolerations` and `spec.podMetadata` anew for each pod that it makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission.kinds.places import Place, as_template
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.kinds.base import Object

METADATA: Final = "podMetadata"
"""The field beside `nodeSelector` and `tolerations` that has the labels and annotations of all pods."""
_MAIN: Final = ("container", "script")
_OTHER_PODS: Final = (
    "sidecars",
    "containerSet",
    "initContainers",
    "podSpecPatch",
    "data",
    "resource",
    "plugin",
    "http",
)
"""Fields of a template by which it has pods, or parts of pods, whose requests are not known here."""


def places(obj: Object) -> list[Place]:
    """The peak. Raises Misconfigured where it is not bounded."""
    spec = obj["spec"]
    parallelism = spec.get("parallelism")
    if not isinstance(parallelism, int) or parallelism < 1:
        raise Misconfigured(
            "spec.parallelism: is missing; without the most pods that run at a time nothing can be counted"
        )
    template = as_template(spec, metadata=METADATA)
    containers = [
        {"name": f"template-{number}", "resources": each.get("resources") or {}}
        for number, each in enumerate(_containers(spec))
    ]
    # Of containers that run one after the other a pod is counted with the most, as here of pods.
    pod = {**template.get("spec", {}), "initContainers": containers, "containers": [{"name": "main"}]}
    numbers = (("spec", "parallelism"),)
    return [
        Place("workflow", "spec.templates", {**template, "spec": pod}, parallelism, ("spec",), flat=True,
              metadata=METADATA, numbers=numbers)
    ]  # fmt: skip


def faults(obj: Object) -> list[tuple[str, str]]:
    """What has pods that are not known before they are made."""
    spec = obj["spec"]
    found = [
        (f"spec.{field}", f"its pods are not in the Workflow itself: {help_}")
        for field, help_ in (
            ("workflowTemplateRef", "write its templates into the Workflow"),
            ("podSpecPatch", "write what it says into the templates"),
        )
        if spec.get(field)
    ]
    for number, template in enumerate(spec.get("templates") or ()):
        path = f"spec.templates[{number}]"
        found += [
            (f"{path}.{field}", "what this asks for cannot be counted: have its pods queued one by one instead")
            for field in _OTHER_PODS
            if template.get(field)
        ]
        if any(step.get("templateRef") for step in _steps(template)):
            told = "its pods are not in the Workflow itself: write the template into the Workflow"
            found.append((f"{path}.templateRef", told))
    return found


def _containers(spec: Object) -> Iterator[Object]:
    for template in (spec.get("templateDefaults") or {}, *(spec.get("templates") or ())):
        yield from (template[field] for field in _MAIN if template.get(field))


def _steps(template: Object) -> Iterator[dict[str, Any]]:
    for group in template.get("steps") or ():
        yield from group if isinstance(group, list) else (group.get("steps") or ())
    yield from (template.get("dag") or {}).get("tasks") or ()
