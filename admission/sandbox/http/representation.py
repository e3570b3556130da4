"""Representation of objects in responses: complete, metadata only or as a Table for `kubectl get`; JSON or YAML."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import yaml

from admission.apimachinery import accept as accepting
from admission.apimachinery.accept import JSON, PARTIAL, PARTIAL_LIST, TABLE, YAML, Format
from admission.apimachinery.errors import NotAcceptable
from admission.apimachinery.tables import Column, duration, partial, table
from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.clock import parse_rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.resources import ServedResource
    from admission.sandbox.apiserver.storage import ObjectVersion
    from admission.sandbox.http.listing import ListPage


__all__ = ["JSON", "Renderer", "dump", "negotiate"]


def negotiate(accept: str) -> Format:
    """Return the first supported format of an Accept header. Raises ApiError (406)."""
    try:
        return accepting.negotiate(accept)
    except NotAcceptable as error:
        raise ApiError(406, "NotAcceptable", str(error)) from error


class Renderer:
    """Serialises objects of one resource in one format.

    `now` returns the time in seconds since the epoch, for ages; `include` is the option includeObject of tables.
    """

    def __init__(self, resource: ServedResource, wanted: Format, now: Callable[[], float], include: str) -> None:
        self._resource = resource
        self._format = wanted
        self._now = now
        self._include = include or "Metadata"
        self._columns_sent = False

    def _converted(self, version: ObjectVersion) -> ObjectVersion:
        """Convert the version to the resource's API version, if that is a view."""
        view = self._resource.view
        return version if view is None else version.with_object(view.from_storage(version.obj))

    def one(self, version: ObjectVersion) -> bytes:
        """Serialise a single object."""
        version = self._converted(version)
        form = self._format.form
        if form == PARTIAL:
            return self._dump(partial(version.obj))
        if form == TABLE:
            metadata = {"resourceVersion": version.obj["metadata"].get("resourceVersion", "")}
            return self._dump(self._table(metadata, [version.obj]))
        if form == PARTIAL_LIST:
            text = f"you requested {PARTIAL_LIST}, but the requested object is not a list ({self._resource.kind})"
            raise ApiError(406, "NotAcceptable", text)
        return version.raw() if self._format.media == JSON else self._dump(version.obj)

    def page(self, page: ListPage) -> bytes:
        """Serialise a list."""
        resource, metadata = self._resource, page.metadata()
        if resource.custom:
            metadata.setdefault("continue", "")
        if resource.view is not None:
            page = replace(page, versions=[self._converted(version) for version in page.versions])
        form = self._format.form
        if form == PARTIAL:
            text = f"you requested {PARTIAL}, but the requested object is a list ({resource.listing})"
            raise ApiError(406, "NotAcceptable", text)
        if form == PARTIAL_LIST:
            items = [partial(version.obj) for version in page.versions]
            return self._dump(
                {"kind": PARTIAL_LIST, "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items}
            )
        if form == TABLE:
            return self._dump(self._table(metadata, [version.obj for version in page.versions]))
        head = {"kind": resource.listing, "apiVersion": resource.api_version, "metadata": metadata}
        if self._format.media == YAML:
            return self._dump({**head, "items": [_without_type(version.obj) for version in page.versions]})
        start = orjson.dumps(head)[:-1]
        return b"%s,%s]}" % (start, b'"items":[' + b",".join([self._item(version) for version in page.versions]))

    def _item(self, version: ObjectVersion) -> bytes:
        """Serialise an object of a list; those of built-in kinds lack kind and apiVersion, their first two fields."""
        raw = version.raw()
        return raw if self._resource.custom else b"{" + raw[self._resource.type_length :]

    def event(self, version: ObjectVersion) -> bytes:
        """Serialise the object of a watch event. Of a watch's Tables only the first has column definitions."""
        version = self._converted(version)
        form = self._format.form
        if form == TABLE:
            metadata = {"resourceVersion": version.obj["metadata"]["resourceVersion"]}
            sent, self._columns_sent = self._columns_sent, True
            return orjson.dumps(self._table(metadata, [version.obj], with_columns=not sent))
        return orjson.dumps(partial(version.obj)) if form in (PARTIAL, PARTIAL_LIST) else version.raw()

    def _table(self, metadata: Object, objects: list[Object], *, with_columns: bool = True) -> Object:
        columns = columns_of(self._resource)
        return table(metadata, columns, objects, now=self._now(), include=self._include, with_columns=with_columns)

    def _dump(self, value: Object) -> bytes:
        return dump(value, self._format.media)


def dump(value: Object, media: str = JSON) -> bytes:
    """Serialise a value in a media type."""
    return orjson.dumps(value) if media == JSON else yaml.safe_dump(value, sort_keys=False).encode()


def _without_type(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


_NAME_TEXT = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a "
    "client to request the generation of an appropriate name automatically. Name is primarily intended for creation "
    "idempotence and configuration definition. Cannot be updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)
_AGE_TEXT = (
    "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed "
    "to be set in happens-before order across separate operations. Clients may not set this value. It is "
    "represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: "
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
)
_IP_TEXT = "podIP address allocated to the pod. Routable at least within the cluster. Empty if not yet allocated."
_NODE_TEXT = (
    "NodeName indicates in which node this pod is scheduled. If empty, this pod is a candidate for scheduling by the "
    "scheduler defined in schedulerName. Once this field is set, the kubelet for this node becomes responsible for the "
    "lifecycle of this pod. This field should not be used to express a desire for the pod to be scheduled on a "
    "specific node. https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename"
)
_NOMINATED_TEXT = (
    "nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be scheduled "
    "right away as preemption victims receive their graceful termination periods. This field does not guarantee "
    "that the pod will be scheduled on this node. Scheduler may decide to place the pod elsewhere if other nodes "
    "become available sooner. Scheduler may also decide to give the resources on this node to a higher priority "
    "pod that is created after preemption. As a result, this field may be different than PodSpec.nodeName when "
    "the pod is scheduled."
)
_GATES_TEXT = (
    "If specified, all readiness gates will be evaluated for pod readiness. A pod is ready when all its containers are "
    'ready AND all conditions specified in the readiness gates have status equal to "True" More info: '
    "https://git.k8s.io/enhancements/keps/sig-network/580-pod-readiness-gates"
)


def _age(obj: Object, now: float) -> str:
    return duration(now - parse_rfc3339(obj["metadata"]["creationTimestamp"]))


def _job_status(obj: Object, now: float) -> str:
    status = obj.get("status", {})
    true = {item["type"] for item in status.get("conditions", ()) if item["status"] == "True"}
    for name in ("Complete", "Failed"):
        if name in true:
            return name
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    for name in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if name in true:
            return name
    return "Running"


def _job_completions(obj: Object, now: float) -> str:
    wanted, done = obj["spec"].get("completions"), obj.get("status", {}).get("succeeded", 0)
    if wanted is not None:
        return f"{done}/{wanted}"
    parallelism = obj["spec"].get("parallelism", 0)
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(obj: Object, now: float) -> str:
    status = obj.get("status", {})
    if "startTime" not in status:
        return ""
    end = parse_rfc3339(status["completionTime"]) if "completionTime" in status else now
    return duration(end - parse_rfc3339(status["startTime"]))


def _replicas(ready: str) -> Callable[[Object, float], str]:
    return lambda obj, now: f"{obj.get('status', {}).get(ready, 0)}/{obj['spec'].get('replicas', 0)}"


def _last_schedule(obj: Object, now: float) -> str:
    last = obj.get("status", {}).get("lastScheduleTime")
    return duration(now - parse_rfc3339(last)) if last else "<none>"


def _selector(obj: Object, now: float) -> str:
    labels = obj["spec"].get("selector", {}).get("matchLabels", {})
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"


def _containers(key: str) -> Callable[[Object, float], str]:
    return lambda obj, now: ",".join(item[key] for item in obj["spec"]["template"]["spec"].get("containers", ()))


def _pod_ready(obj: Object, now: float) -> str:
    ready = sum(1 for item in obj.get("status", {}).get("containerStatuses", ()) if item.get("ready"))
    return f"{ready}/{len(obj['spec'].get('containers', ()))}"


def _pod_status(obj: Object, now: float) -> str:
    status = obj.get("status", {})
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    conditions = status.get("conditions", ())
    if any(item["type"] == "PodScheduled" and item.get("reason") == "SchedulingGated" for item in conditions):
        return "SchedulingGated"
    if status.get("phase") == "Succeeded":
        return "Completed"
    reason: str = status.get("reason") or ("Error" if status.get("phase") == "Failed" else status.get("phase", ""))
    return reason


def _restarts(obj: Object, now: float) -> str:
    return str(sum(item.get("restartCount", 0) for item in obj.get("status", {}).get("containerStatuses", ())))


def _node_status(obj: Object, now: float) -> str:
    ready = next((c["status"] for c in obj.get("status", {}).get("conditions", ()) if c["type"] == "Ready"), "Unknown")
    shown = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
    return shown + ",SchedulingDisabled" if obj["spec"].get("unschedulable") else shown


def _field(path: str, default: object = "<none>") -> Callable[[Object, float], Any]:
    def cell(obj: Object, now: float) -> Any:
        found: Any = obj
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return default if found is None else found

    return cell


def _count(path: str) -> Callable[[Object, float], Any]:
    return _field(path, 0)


def _controller(obj: Object, now: float) -> str:
    owner = next((each for each in obj["metadata"].get("ownerReferences", ()) if each.get("controller")), None)
    if owner is None:
        return "<none>"
    group = owner["apiVersion"].rpartition("/")[0]
    return f"{owner['kind'].lower()}{'.' if group else ''}{group}/{owner['name']}"


def _last_seen(obj: Object, now: float) -> str:
    seen = obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"]["creationTimestamp"]
    return duration(now - parse_rfc3339(seen))


def _event_object(obj: Object, now: float) -> str:
    involved = obj.get("involvedObject", {})
    return f"{involved.get('kind', '').lower()}/{involved.get('name', '')}"


def _api_service(obj: Object, now: float) -> str:
    service = obj["spec"].get("service")
    return f"{service['namespace']}/{service['name']}" if service else "Local"


def _api_available(obj: Object, now: float) -> str:
    """Return the status of the condition Available, with its reason unless True; Unknown before the first probe."""
    for item in obj.get("status", {}).get("conditions", ()):
        status: str = item["status"]
        return status if status == "True" else f"{status} ({item['reason']})"
    return "Unknown"


_NAME, _AGE = Column("Name", _field("metadata.name"), _NAME_TEXT), Column("Age", _age, _AGE_TEXT)
_TEMPLATE = (Column("Containers", _containers("name"), wide=True), Column("Images", _containers("image"), wide=True))
_COLUMNS: dict[tuple[str, str], tuple[Column, ...]] = {
    ("batch", "jobs"): (
        _NAME,
        Column("Status", _job_status, "Status of the job."),
        Column("Completions", _job_completions, (
            "The number of pods which reached phase Succeeded. The value increases monotonically for a given spec. "
            "However, it may decrease in reaction to scale down of elastic indexed jobs."
        )),
        Column("Duration", _job_duration, "Time required to complete the job."),
        _AGE,
        Column("Containers", _containers("name"), "Names of each container in the template.", wide=True),
        Column("Images", _containers("image"), "Images referenced by each container in the template.", wide=True),
        Column("Selector", _selector, (
            "A label query over pods that should match the pod count. Normally, the system sets this field for "
            "you. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors"
        ), wide=True),
    ),
    ("", "pods"): (
        _NAME,
        Column("Ready", _pod_ready, "The aggregate readiness state of this pod for accepting traffic."),
        Column("Status", _pod_status, "The aggregate status of the containers in this pod."),
        Column("Restarts", _restarts, (
            "The number of times the containers in this pod have been restarted and when the last container in "
            "this pod has restarted."
        )),
        _AGE,
        Column("IP", _field("status.podIP"), _IP_TEXT, wide=True),
        Column("Node", _field("spec.nodeName"), _NODE_TEXT, wide=True),
        Column("Nominated Node", _field("status.nominatedNodeName"), _NOMINATED_TEXT, wide=True),
        Column("Readiness Gates", _field("spec.readinessGates"), _GATES_TEXT, wide=True),
    ),
    ("apps", "deployments"): (
        _NAME,
        Column("Ready", _replicas("readyReplicas"), "Number of the pod with ready state"),
        Column("Up-to-date", _count("status.updatedReplicas"), type="integer"),
        Column("Available", _count("status.availableReplicas"), type="integer"),
        _AGE, *_TEMPLATE, Column("Selector", _selector, wide=True),
    ),
    ("apps", "replicasets"): (
        _NAME,
        Column("Desired", _count("spec.replicas"), type="integer"),
        Column("Current", _count("status.replicas"), type="integer"),
        Column("Ready", _count("status.readyReplicas"), type="integer"),
        _AGE, *_TEMPLATE, Column("Selector", _selector, wide=True),
    ),
    ("apps", "statefulsets"): (
        _NAME, Column("Ready", _replicas("readyReplicas"), "Number of the pod with ready state"), _AGE, *_TEMPLATE,
    ),
    ("apps", "controllerrevisions"): (
        _NAME, Column("Controller", _controller), Column("Revision", _count("revision"), type="integer"),
        _AGE,
    ),
    ("batch", "cronjobs"): (
        _NAME,
        Column("Schedule", _field("spec.schedule", "")),
        Column("Timezone", _field("spec.timeZone")),
        Column("Suspend", lambda obj, now: str(obj["spec"].get("suspend", False))),
        Column("Active", lambda obj, now: len(obj.get("status", {}).get("active", ())), type="integer"),
        Column("Last Schedule", _last_schedule),
        _AGE,
    ),
    ("", "namespaces"): (_NAME, Column("Status", _field("status.phase"), "The status of the namespace"), _AGE),
    ("", "nodes"): (
        _NAME,
        Column("Status", _node_status, "The status of the node"),
        Column("Roles", lambda obj, now: "<none>", "The roles of the node"),
        _AGE,
        Column("Version", _field("status.nodeInfo.kubeletVersion", ""), "Kubelet Version reported by the node."),
    ),
    ("", "events"): (
        Column("Last Seen", _last_seen), Column("Type", _field("type", "")),
        Column("Reason", _field("reason", "")),
        Column("Object", _event_object), Column("Message", _field("message", "")),
        Column("Name", _field("metadata.name"), _NAME_TEXT, wide=True),
    ),
    ("scheduling.k8s.io", "priorityclasses"): (
        _NAME,
        Column("Value", _field("value", 0), type="integer"),
        Column("Global-Default", _field("globalDefault", default=False), type="boolean"),
        _AGE,
        Column("PreemptionPolicy", _field("preemptionPolicy", "")),
    ),
    ("apiregistration.k8s.io", "apiservices"): (
        _NAME,
        Column("Service", _api_service, "The reference to the service that hosts this API endpoint."),
        Column("Available", _api_available, "Whether this service is available."),
        _AGE,
    ),
}  # fmt: skip


def columns_of(resource: ServedResource) -> tuple[Column, ...]:
    """Return the columns of a resource: built-in ones, those of its CustomResourceDefinition, or name and age."""
    if resource.printer_columns:
        return (_NAME, *(_custom_column(column) for column in resource.printer_columns))
    return _COLUMNS.get(resource.key, (_NAME, _AGE))


def _custom_column(column: Object) -> Column:
    path, kind = column["jsonPath"], column["type"]
    text = column.get("description") or f"Custom resource definition column (in JSONPath format): {path}"
    return Column(column["name"], _custom_cell(path, kind), text, kind, wide=column.get("priority", 0))


def _custom_cell(path: str, kind: str) -> Callable[[Object, float], Any]:
    find = _field(path.lstrip("."), None)

    def cell(obj: Object, now: float) -> Any:
        found = find(obj, now)
        if kind == "date" and isinstance(found, str):
            return duration(now - parse_rfc3339(found))
        return found

    return cell
