"""RBAC bootstrap policy: the default ClusterRoles and bindings of a cluster, as far as the sandbox needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.auth.rbac import RBAC
from admission.sandbox.auth.users import AUTHENTICATED, MASTERS, UNAUTHENTICATED

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_INFO_PATHS = ["/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*", "/version", "/version/"]
_DISCOVERY_PATHS = [*_INFO_PATHS, "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]
_REVIEWS = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
# Namespaced resources that the roles view (read) and edit (write) cover, by API group.
_NAMESPACED = {
    "": ["configmaps", "events", "pods", "pods/log", "pods/status", "serviceaccounts", "services"],
    "batch": ["cronjobs", "cronjobs/status", "jobs", "jobs/status"],
    "apps": [
        "controllerrevisions",
        *(
            f"{plural}{part}"
            for plural in ("deployments", "replicasets", "statefulsets")
            for part in ("", "/scale", "/status")
        ),
    ],
    "policy": ["poddisruptionbudgets", "poddisruptionbudgets/status"],
}


def _aggregation_rule(to: str) -> Object:
    return {"clusterRoleSelectors": [{"matchLabels": {_label(to): "true"}}]}


def _label(to: str) -> str:
    return f"{RBAC}/aggregate-to-{to}"


def _aggregated_to(to: str, rules: list[Object]) -> tuple[str, Object]:
    return f"system:aggregate-to-{to}", {"metadata": {"labels": {_label(to): "true"}}, "rules": rules}


def _user_facing(name: str, *, also_in: str = "") -> tuple[str, Object]:
    """Return a user-facing role, whose rules are aggregated from all roles with its label.

    `also_in` names a wider role that aggregates this one.
    """
    labels = {_label(also_in): "true"} if also_in else {}
    return name, {"metadata": {"labels": labels}, "aggregationRule": _aggregation_rule(name)}


def _namespaced_rules(verbs: list[str]) -> list[Object]:
    return [{"apiGroups": [group], "resources": names, "verbs": verbs} for group, names in _NAMESPACED.items()]


# Pairs of the name and the content of a ClusterRole.
CLUSTER_ROLES: tuple[tuple[str, Object], ...] = (
    ("system:public-info-viewer", {"rules": [{"nonResourceURLs": _INFO_PATHS, "verbs": ["get"]}]}),
    ("system:discovery", {"rules": [{"nonResourceURLs": _DISCOVERY_PATHS, "verbs": ["get"]}]}),
    ("system:basic-user", {"rules": [
        {"apiGroups": ["authorization.k8s.io"], "resources": _REVIEWS, "verbs": ["create"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
    ]}),
    ("system:auth-delegator", {"rules": [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ]}),
    ("cluster-admin", {"rules": [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]}),
    _aggregated_to("view", _namespaced_rules(_READ)),
    _aggregated_to("edit", [
        *_namespaced_rules(_WRITE),
        {"apiGroups": [""], "resources": ["secrets"], "verbs": [*_READ, *_WRITE]},
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
    ]),
    _aggregated_to("admin", [
        {"apiGroups": [RBAC], "resources": ["roles", "rolebindings"], "verbs": [*_READ, *_WRITE]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["localsubjectaccessreviews"], "verbs": ["create"]},
    ]),
    _user_facing("view", also_in="edit"),
    _user_facing("edit", also_in="admin"),
    _user_facing("admin"),
)  # fmt: skip

# Pairs of a name, shared by ClusterRole and binding, and the groups it is bound to.
CLUSTER_ROLE_BINDINGS = (
    ("system:public-info-viewer", (AUTHENTICATED, UNAUTHENTICATED)),
    ("system:discovery", (AUTHENTICATED,)),
    ("system:basic-user", (AUTHENTICATED,)),
    ("cluster-admin", (MASTERS,)),
)

# Role for extension API servers (aggregated APIs), which read there how to authenticate the front proxy.
AUTHENTICATION_READER = (
    "extension-apiserver-authentication-reader",
    {"rules": [{
        "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["extension-apiserver-authentication"],
        "verbs": _READ,
    }]},
)  # fmt: skip
