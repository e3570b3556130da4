"""Strategies of the simpler kinds, and the table of all built-in resources."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zoneinfo import available_timezones

from admission.sandbox.admission.configurations import AdmissionPolicies, AdmissionPolicyBindings, WebhookConfigurations
from admission.sandbox.admission.limit_ranges import LimitRanges
from admission.sandbox.apiserver import errors
from admission.sandbox.apiserver.custom_resources import Definitions
from admission.sandbox.apiserver.errors import Cause, forbidden, invalid
from admission.sandbox.apiserver.event_views import EVENTS_VIEW
from admission.sandbox.apiserver.resources import ALL_VERBS, SCALE, STATUS, ServedResource, ServedSubresource
from admission.sandbox.apiserver.schema import Schema
from admission.sandbox.apiserver.strategy import Strategy
from admission.sandbox.auth.rbac import ClusterRoles, RoleBindings, Roles
from admission.sandbox.builtin.api_services import ApiServices
from admission.sandbox.builtin.apps import ControllerRevisions, Deployments, ReplicaSets, StatefulSets
from admission.sandbox.builtin.devices import DeviceClasses, ResourceClaims, ResourceClaimTemplates, ResourceSlices
from admission.sandbox.builtin.jobs import Jobs
from admission.sandbox.builtin.pods import Pods
from admission.sandbox.builtin.podspec import default_pod_spec, pod_spec_causes
from admission.sandbox.schedules import InvalidSchedule, parse_schedule

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry

_NAME_LABEL = "kubernetes.io/metadata.name"
_PROTECTED = ("default", "kube-system", "kube-public")
# Taint of a new node, which keeps pods away until its kubelet has reported it ready.
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
HIGHEST_USER_PRIORITY = 1_000_000_000


class Plain(Strategy):
    """Strategy for kinds without a generation, which hold data that no controller reconciles."""

    has_generation = False


class PodTemplates(Strategy):
    """Strategy for core/v1 PodTemplate."""

    def default(self, obj: Object) -> None:
        default_pod_spec(obj.setdefault("template", {}).setdefault("spec", {}))

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        return pod_spec_causes(obj["template"]["spec"], "template.spec")

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        return pod_spec_causes(new["template"]["spec"], "template.spec")


class Namespaces(Strategy):
    """Strategy for core/v1 Namespace."""

    has_generation = False
    label_names = True

    def default(self, obj: Object) -> None:
        metadata = obj["metadata"]
        name = metadata.get("name")
        if name and metadata.get("labels", {}).get(_NAME_LABEL) != name:
            metadata["labels"] = {**metadata.get("labels", {}), _NAME_LABEL: name}

    def prepare_create(self, registry: ObjectRegistry, obj: Object) -> None:
        self.default(obj)
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}

    def prepare_update(self, new: Object, old: Object) -> None:
        new["spec"] = {**new["spec"], "finalizers": old["spec"].get("finalizers", [])}

    def begin_deletion(self, obj: Object) -> Object:
        return {**obj, "status": {**obj["status"], "phase": "Terminating"}}

    def blocks_removal(self, obj: Object) -> bool:
        return bool(obj["spec"].get("finalizers"))

    def check_delete(self, obj: Object) -> None:
        name = obj["metadata"]["name"]
        if name in _PROTECTED:
            raise errors.denied(f'namespaces "{name}" is forbidden: this namespace may not be deleted')


class NodeStrategy(Strategy):
    """Strategy for core/v1 Node."""

    has_generation = False

    def default(self, obj: Object) -> None:
        capacity = obj["status"].get("capacity")
        if capacity:
            obj["status"]["allocatable"] = {**capacity, **obj["status"].get("allocatable", {})}

    def prepare_create(self, registry: ObjectRegistry, obj: Object) -> None:
        info = dict.fromkeys(
            ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion",
             "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture"), "",
        )  # fmt: skip
        status = obj["status"]
        status.setdefault("nodeInfo", info)
        taints = obj["spec"].get("taints", [])
        if not any(taint["key"] == NOT_READY["key"] for taint in taints):
            obj["spec"] = {**obj["spec"], "taints": [*taints, NOT_READY]}
        status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})


class CronJobs(Strategy):
    """Strategy for batch/v1 CronJob."""

    def default(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)
        template = spec.get("jobTemplate", {}).get("spec")
        if template:
            default_pod_spec(template["template"]["spec"])

    def prepare_create(self, registry: ObjectRegistry, obj: Object) -> None:
        obj["status"] = {}

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        spec, causes = obj["spec"], []
        try:
            parse_schedule(spec.get("schedule", ""))
        except InvalidSchedule as error:
            causes.append(invalid("spec.schedule", spec.get("schedule", ""), str(error)))
        zone = spec.get("timeZone")
        if zone is not None and zone not in available_timezones():
            causes.append(invalid("spec.timeZone", zone, f"unknown time zone {zone}"))
        return causes

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        return self.validate_create(registry, new)


class PriorityClasses(Strategy):
    """Strategy for scheduling.k8s.io/v1 PriorityClass."""

    increments_generation = False

    def default(self, obj: Object) -> None:
        obj.setdefault("value", 0)
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        name = obj["metadata"].get("name", "")
        if name.startswith("system-"):
            text = "priority class names with 'system-' prefix are reserved for system use only"
            return [forbidden("metadata.name", text)]
        if obj["value"] > HIGHEST_USER_PRIORITY:
            text = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
            return [forbidden("value", text)]
        return []

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        return [
            forbidden(key, "may not be changed in an update.")
            for key in ("value", "preemptionPolicy")
            if new[key] != old[key]
        ]


class Leases(Strategy):
    """Strategy for coordination.k8s.io/v1 Lease."""

    has_generation = False
    create_on_update = True

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        causes = []
        for key, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
            value = obj["spec"].get(key)
            if value is not None and value < least:
                text = "must be greater than 0" if least else "must be greater than or equal to 0"
                causes.append(invalid(f"spec.{key}", value, text))
        return causes

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        return self.validate_create(registry, new)


class Events(Strategy):
    """Strategy for core/v1 Event."""

    has_generation = False

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        about = obj.get("involvedObject", {}).get("namespace", "")
        if about != obj["metadata"]["namespace"] and not (not about and obj["metadata"]["namespace"] == "default"):
            return [invalid("involvedObject.namespace", about, "does not match event.namespace")]
        return []


class ServiceAccounts(Strategy):
    """Strategy for core/v1 ServiceAccount."""

    has_generation = False
    returns_deleted = True


_PLAIN, _GENERAL = Plain(), Strategy()

# (group, version) to (kind, plural, model of the client library, further attributes of the Resource).
_BUILT_IN: dict[tuple[str, str], list[tuple[str, str, str, dict[str, object]]]] = {
    ("", "v1"): [
        ("Namespace", "namespaces", "V1Namespace", {
            "namespaced": False, "short": ("ns",), "strategy": Namespaces(),
            "verbs": tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
            "subresources": (ServedSubresource("finalize", ("update",)), STATUS),
        }),
        ("Node", "nodes", "V1Node", {
            "namespaced": False, "short": ("no",), "strategy": NodeStrategy(), "subresources": (STATUS,),
        }),
        ("Pod", "pods", "V1Pod", {
            "short": ("po",), "categories": ("all",), "strategy": Pods(),
            "subresources": (
                ServedSubresource("binding", ("create",), "Binding"),
                ServedSubresource("ephemeralcontainers", ("get", "patch", "update")),
                ServedSubresource("eviction", ("create",), "Eviction", "policy", "v1"),
                ServedSubresource("log", ("get",)),
                ServedSubresource("resize", ("get", "patch", "update")),
                STATUS,
            ),
        }),
        ("ConfigMap", "configmaps", "V1ConfigMap", {"short": ("cm",)}),
        ("Secret", "secrets", "V1Secret", {}),
        ("PersistentVolumeClaim", "persistentvolumeclaims", "V1PersistentVolumeClaim", {
            "short": ("pvc",), "subresources": (STATUS,),
        }),
        ("ServiceAccount", "serviceaccounts", "V1ServiceAccount", {
            "short": ("sa",), "strategy": ServiceAccounts(),
            "subresources": (ServedSubresource("token", ("create",), "TokenRequest", "authentication.k8s.io", "v1"),),
        }),
        ("Service", "services", "V1Service", {"short": ("svc",), "categories": ("all",), "subresources": (STATUS,)}),
        ("Event", "events", "CoreV1Event", {"short": ("ev",), "strategy": Events()}),
        ("PodTemplate", "podtemplates", "V1PodTemplate", {"strategy": PodTemplates()}),
        ("LimitRange", "limitranges", "V1LimitRange", {"short": ("limits",), "strategy": LimitRanges()}),
        ("ResourceQuota", "resourcequotas", "V1ResourceQuota", {"short": ("quota",), "subresources": (STATUS,)}),
    ],
    ("batch", "v1"): [
        ("Job", "jobs", "V1Job", {"categories": ("all",), "strategy": Jobs(), "subresources": (STATUS,)}),
        ("CronJob", "cronjobs", "V1CronJob", {
            "short": ("cj",), "categories": ("all",), "strategy": CronJobs(), "subresources": (STATUS,),
        }),
    ],
    ("apps", "v1"): [
        ("Deployment", "deployments", "V1Deployment", {
            "short": ("deploy",), "categories": ("all",), "strategy": Deployments(), "subresources": (SCALE, STATUS),
        }),
        ("ReplicaSet", "replicasets", "V1ReplicaSet", {
            "short": ("rs",), "categories": ("all",), "strategy": ReplicaSets(), "subresources": (SCALE, STATUS),
        }),
        ("StatefulSet", "statefulsets", "V1StatefulSet", {
            "short": ("sts",), "categories": ("all",), "strategy": StatefulSets(), "subresources": (SCALE, STATUS),
        }),
        ("ControllerRevision", "controllerrevisions", "V1ControllerRevision", {"strategy": ControllerRevisions()}),
    ],
    ("events.k8s.io", "v1"): [
        ("Event", "events", "EventsV1Event", {"short": ("ev",), "strategy": _PLAIN, "view": EVENTS_VIEW}),
    ],
    ("coordination.k8s.io", "v1"): [("Lease", "leases", "V1Lease", {"strategy": Leases()})],
    ("scheduling.k8s.io", "v1"): [
        ("PriorityClass", "priorityclasses", "V1PriorityClass", {
            "namespaced": False, "short": ("pc",), "strategy": PriorityClasses(),
        }),
    ],
    ("node.k8s.io", "v1"): [("RuntimeClass", "runtimeclasses", "V1RuntimeClass", {"namespaced": False})],
    ("resource.k8s.io", "v1"): [
        ("DeviceClass", "deviceclasses", "V1DeviceClass", {"namespaced": False, "strategy": DeviceClasses()}),
        ("ResourceClaim", "resourceclaims", "ResourceV1ResourceClaim", {
            "strategy": ResourceClaims(), "subresources": (STATUS,),
        }),
        ("ResourceClaimTemplate", "resourceclaimtemplates", "V1ResourceClaimTemplate", {
            "strategy": ResourceClaimTemplates(),
        }),
        ("ResourceSlice", "resourceslices", "V1ResourceSlice", {"namespaced": False, "strategy": ResourceSlices()}),
    ],
    ("apiextensions.k8s.io", "v1"): [
        ("CustomResourceDefinition", "customresourcedefinitions", "V1CustomResourceDefinition", {
            "namespaced": False, "short": ("crd", "crds"), "categories": ("api-extensions",),
            "strategy": Definitions(), "subresources": (STATUS,),
        }),
    ],
    ("networking.k8s.io", "v1"): [
        ("NetworkPolicy", "networkpolicies", "V1NetworkPolicy", {"short": ("netpol",), "strategy": _GENERAL}),
    ],
    ("policy", "v1"): [
        ("PodDisruptionBudget", "poddisruptionbudgets", "V1PodDisruptionBudget", {
            "short": ("pdb",), "strategy": _GENERAL, "subresources": (STATUS,),
        }),
    ],
    ("rbac.authorization.k8s.io", "v1"): [
        ("Role", "roles", "V1Role", {"strategy": Roles()}),
        ("RoleBinding", "rolebindings", "V1RoleBinding", {"strategy": RoleBindings()}),
        ("ClusterRole", "clusterroles", "V1ClusterRole", {"namespaced": False, "strategy": ClusterRoles()}),
        ("ClusterRoleBinding", "clusterrolebindings", "V1ClusterRoleBinding", {
            "namespaced": False, "strategy": RoleBindings(),
        }),
    ],
    ("admissionregistration.k8s.io", "v1"): [
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "V1MutatingWebhookConfiguration", {
            "namespaced": False, "strategy": WebhookConfigurations(mutating=True),
        }),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "V1ValidatingWebhookConfiguration", {
            "namespaced": False, "strategy": WebhookConfigurations(mutating=False),
        }),
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies", "V1MutatingAdmissionPolicy", {
            "namespaced": False, "strategy": AdmissionPolicies(mutating=True),
        }),
        ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", "V1MutatingAdmissionPolicyBinding", {
            "namespaced": False, "strategy": AdmissionPolicyBindings(mutating=True),
        }),
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", "V1ValidatingAdmissionPolicy", {
            "namespaced": False, "strategy": AdmissionPolicies(mutating=False), "subresources": (STATUS,),
        }),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", "V1ValidatingAdmissionPolicyBinding",
         {"namespaced": False, "strategy": AdmissionPolicyBindings(mutating=False)}),
    ],
    ("apiregistration.k8s.io", "v1"): [
        ("APIService", "apiservices", "V1APIService", {
            "namespaced": False, "strategy": ApiServices(), "subresources": (STATUS,),
        }),
    ],
}  # fmt: skip


_SINCE = {
    "mutatingadmissionpolicies": 36,
    "mutatingadmissionpolicybindings": 36,
    "validatingadmissionpolicies": 30,
    "validatingadmissionpolicybindings": 30,
    "deviceclasses": 34,
    "resourceclaims": 34,
    "resourceclaimtemplates": 34,
    "resourceslices": 34,
}
"""First minor version of Kubernetes that serves a resource; older simulated versions lack it."""


def built_in(minor: int) -> list[ServedResource]:
    """Return all stored resources that are built into Kubernetes 1.`minor`."""
    resources = []
    for (group, version), rows in _BUILT_IN.items():
        for kind, plural, model, options in rows:
            if minor < _SINCE.get(plural, 0):
                continue
            attributes = {"strategy": _PLAIN, **options}
            resources.append(ServedResource(group, version, plural, kind, schema=Schema(model), **attributes))  # type: ignore[arg-type]
    return resources
