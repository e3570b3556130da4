"""ProvisioningRequests: built from an admission, and read as an autoscaler has answered them. Pure functions.

The rules, names of annotations and messages are those of Kueue's admission check controller of that name.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission.kinds import templates
from admission.kinds.base import WORKLOAD_UID
from admission.kinds.patches import merged
from admission.model.checks import CheckReport, PodSetUpdate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission.kinds.base import Kind, Object
    from admission.model.provisioning import ProvisioningRequestConfigSpec
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission, PodSetAssignment, Workload

API_VERSION: Final = "autoscaling.x-k8s.io/v1"
KIND: Final = "ProvisioningRequest"
COLLECTION: Final = f"/apis/{API_VERSION}/provisioningrequests"
"""Path of the requests of all namespaces."""
SELECTOR: Final = WORKLOAD_UID
"""Label selector of the requests that Sluice has made."""
CHECK: Final = "sluice.dev/admission-check"
"""Annotation of a request with the name of the AdmissionCheck that it is for."""
ATTEMPT: Final = "sluice.dev/attempt"
"""Annotation of a request with the number of the attempt; the first is 1."""
CONSUMES: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
"""Annotation of pods that names the request whose nodes they use."""
CLASS_NAME: Final = "autoscaling.x-k8s.io/provisioning-class-name"
"""Annotation of pods with the mode of provisioning."""
PARAMETER: Final = "provreq.kueue.x-k8s.io/"
"""Prefix of annotations of a Job that add or replace parameters of its requests."""
NOT_NEEDED: Final = "the provisioning request is not needed"
_LONGEST_NAME: Final = 253
_LONGEST_VALUE: Final = 255
_DIGITS: Final = 5


class Requested(NamedTuple):
    """A request that Sluice has made, as last seen."""

    namespace: str
    name: str
    uid: str
    workload: str
    """Uid of the workload."""
    check: str
    attempt: int
    deleting: bool
    spec: Mapping[str, Any]
    conditions: Mapping[str, tuple[bool, str]]
    """Whether each condition is True, and its message, by its type."""
    details: Mapping[str, str]
    """What the autoscaler says about the nodes."""

    def is_true(self, condition: str) -> bool:
        """Whether the request has the condition."""
        return self.conditions.get(condition, (False, ""))[0]

    def message(self, condition: str) -> str:
        """The message of a condition."""
        return self.conditions.get(condition, (False, ""))[1]


def read(obj: Object) -> Requested:
    """Return what counts of a request that Sluice has made."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    annotations = metadata.get("annotations") or {}
    attempt = annotations.get(ATTEMPT, "")
    return Requested(
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        (metadata.get("labels") or {}).get(WORKLOAD_UID, ""),
        annotations.get(CHECK, ""),
        int(attempt) if attempt.isdecimal() else 0,
        "deletionTimestamp" in metadata,
        obj.get("spec") or {},
        {
            each["type"]: (each.get("status") == "True", each.get("message") or "")
            for each in status.get("conditions") or ()
        },
        status.get("provisioningClassDetails") or {},
    )


class WantedRequest(NamedTuple):
    """The request for the pods of an admission."""

    request: Object
    templates: tuple[Object, ...]
    """The PodTemplates that it names, which belong to it."""
    pod_sets: tuple[str, ...]
    """All pod sets whose nodes are requested."""


def wanted(
    kind: Kind,
    obj: Object,
    workload: Workload,
    admission: Admission,
    *,
    flavors: Mapping[str, ResourceFlavor],
    config: ProvisioningRequestConfigSpec,
    check: str,
    attempt: int,
    owner: Object | None,
) -> WantedRequest | None:
    """Return the request for an admission; None: no pod uses one of the managed resources.

    `owner`: reference to the object with which the request is deleted; None: there is no such object. Raises
    Misconfigured if the flavors cannot be added to a template.
    """
    sets = [
        (assignment, template)
        for assignment, template in _assigned(kind, obj, workload, admission)
        if not config.managed_resources or _uses(template, config.managed_resources)
    ]
    if not sets:
        return None
    name = _name(f"{workload.kind.lower()}-{workload.name}-{check}", f"{workload.uid}/{check}", attempt)
    metadata = {"namespace": workload.namespace, "labels": {WORKLOAD_UID: workload.uid}}
    requested: list[Object] = []
    made: list[Object] = []
    shapes: list[object] = []
    for number, (assignment, template) in enumerate(sets):
        additions = templates.of_admission(assignment, flavors, (), template, path=assignment.name)
        patch, _ = templates.inject(template, additions, path=assignment.name)
        full = _for_requests(merged(template, patch))
        shape = _shape(full, config.pod_set_merge_policy, number)
        if shape in shapes:
            requested[shapes.index(shape)]["count"] += assignment.count
            continue
        shapes.append(shape)
        named = _limited(f"ppt-{name}-{assignment.name}")
        requested.append({"podTemplateRef": {"name": named}, "count": assignment.count})
        made.append(
            {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": named, **metadata}, "template": full}
        )
    parameters = {**config.parameters, **dict(_parameters(obj))}
    request: Object = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": name,
            **metadata,
            "annotations": {CHECK: check, ATTEMPT: str(attempt)},
            **({} if owner is None else {"ownerReferences": [owner]}),
        },
        "spec": {
            "provisioningClassName": config.provisioning_class_name,
            **({"parameters": parameters} if parameters else {}),
            "podSets": requested,
        },
    }
    return WantedRequest(request, tuple(made), tuple(assignment.name for assignment, _ in sets))


def is_as_wanted(seen: Requested, request: WantedRequest) -> bool:
    """Whether a request asks for what is wanted now; if not, as after a change of its configuration, it is replaced."""
    spec = request.request["spec"]
    return seen.name == request.request["metadata"]["name"] and all(
        (seen.spec.get(field) or None) == (spec.get(field) or None)
        for field in ("provisioningClassName", "parameters", "podSets")
    )


def answer(seen: Requested, request: WantedRequest, config: ProvisioningRequestConfigSpec) -> CheckReport:
    """Return the state of the check of a workload that has not started, as the autoscaler has answered its request."""
    if seen.is_true("Failed"):
        return _failed(seen, config, seen.message("Failed"), "Retrying after failure")
    if seen.is_true("CapacityRevoked"):
        return CheckReport(name=seen.check, state="Rejected", message=seen.message("CapacityRevoked"))
    if seen.is_true("BookingExpired"):
        return _failed(seen, config, seen.message("BookingExpired"), "Retrying after booking expired")
    if seen.is_true("Provisioned"):
        return CheckReport(
            name=seen.check,
            state="Ready",
            message=seen.message("Provisioned"),
            pod_set_updates=tuple(_updates(seen, request, config)),
        )
    told = seen.message("Provisioned") if seen.is_true("Accepted") else ""
    return CheckReport(name=seen.check, state="Pending", message=told or _waits(seen))


def _waits(seen: Requested) -> str:
    what = f"ProvisioningRequest {seen.name} ({seen.spec.get('provisioningClassName')})"
    return f"{what} is accepted, and waits for nodes" if seen.is_true("Accepted") else f"{what} is not answered yet"


def _failed(seen: Requested, config: ProvisioningRequestConfigSpec, message: str, prefix: str) -> CheckReport:
    retry = config.retry_strategy
    if seen.attempt > retry.backoff_limit_count:
        return CheckReport(name=seen.check, state="Rejected", message=message)
    pause = retry.pause(seen.attempt)
    return CheckReport(name=seen.check, state="Retry", message=f"{prefix}: {message}", requeue_after_seconds=pause)


def _updates(seen: Requested, request: WantedRequest, config: ProvisioningRequestConfigSpec) -> Iterator[PodSetUpdate]:
    selector = {
        each.key: seen.details[each.value_from_provisioning_class_detail]
        for each in config.pod_set_updates.node_selector
        if each.value_from_provisioning_class_detail in seen.details
    }
    annotations = {CONSUMES: seen.name, CLASS_NAME: seen.spec["provisioningClassName"]}
    for name in request.pod_sets:
        yield PodSetUpdate(name=name, annotations=annotations, node_selector=selector)


def _assigned(
    kind: Kind, obj: Object, workload: Workload, admission: Admission
) -> Iterator[tuple[PodSetAssignment, Object]]:
    by_name = {
        pod_set.name: template for pod_set, template in zip(workload.pod_sets, kind.templates(obj), strict=False)
    }
    for assignment in admission.pod_sets:
        if assignment.count and (template := by_name.get(assignment.name)) is not None:
            yield assignment, template


def _uses(template: Mapping[str, Any], resources: tuple[str, ...]) -> bool:
    """Whether a container requests, or is limited in, one of the resources."""
    return any(
        resource in (given or ())
        for container in _containers(template)
        for given in (container.get("resources") or {}).values()
        for resource in resources
    )


def _containers(template: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    spec = template.get("spec") or {}
    for field in ("initContainers", "containers"):
        yield from spec.get(field) or ()


def _for_requests(template: Object) -> Object:
    """Return a template as the autoscaler gets it: pods that may be scheduled, with limits as missing requests."""
    spec = dict(template.get("spec") or {})
    spec.pop("schedulingGates", None)
    spec.pop("nodeName", None)
    for field in ("initContainers", "containers"):
        if items := spec.get(field):
            spec[field] = [_with_requests(item) for item in items]
    metadata = template.get("metadata") or {}
    kept = {field: metadata[field] for field in ("labels", "annotations") if metadata.get(field)}
    return {"metadata": kept, "spec": spec}


def _with_requests(container: Object) -> Object:
    given = container.get("resources") or {}
    requests = {**(given.get("limits") or {}), **(given.get("requests") or {})}
    return {**container, "resources": {**given, "requests": requests}} if requests else container


def _shape(template: Object, policy: str | None, number: int) -> object:
    """Return what pod sets that are requested together have in common; without a policy none are."""
    if policy is None:
        return number
    if policy == "IdenticalPodTemplates":
        return template
    spec = template["spec"]
    return [
        [[(item.get("resources") or {}).get("requests") for item in spec.get(field) or ()]
         for field in ("initContainers", "containers")],
        *(spec.get(field) for field in ("nodeSelector", "tolerations", "affinity", "resourceClaims", "overhead")),
    ]  # fmt: skip


def _parameters(obj: Object) -> Iterator[tuple[str, str]]:
    """Yield the parameters that the object's annotations give, as far as a request can have them."""
    for key, value in (obj["metadata"].get("annotations") or {}).items():
        name = key.removeprefix(PARAMETER)
        if name not in (key, "") and isinstance(value, str) and len(value) <= _LONGEST_VALUE:
            yield name, value


def _name(text: str, identity: str, attempt: int) -> str:
    """Return a name that no request of another object has, also of a former one with the same name."""
    ending = f"-{sha256(identity.encode()).hexdigest()[:_DIGITS]}-{attempt}"
    return f"{text[: _LONGEST_NAME - len(ending)].rstrip('-.')}{ending}"


def _limited(name: str) -> str:
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - _DIGITS - 1]}-{sha256(name.encode()).hexdigest()[:_DIGITS]}"
