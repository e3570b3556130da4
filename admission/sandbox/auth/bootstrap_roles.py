"""The roles that every cluster is born with, as far as they matter here, and who holds them."""

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
# What users of a namespace may read and write there, by group.
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


def _aggregate(to: str) -> Object:
    return {"clusterRoleSelectors": [{"matchLabels": {_label(to): "true"}}]}


def _label(to: str) -> str:
    return f"{RBAC}/aggregate-to-{to}"


def _part(to: str, rules: list[Object]) -> tuple[str, Object]:
    return f"system:aggregate-to-{to}", {"metadata": {"labels": {_label(to): "true"}}, "rules": rules}


def _whole(name: str, *, also_in: str = "") -> tuple[str, Object]:
    """One of the roles that users are given, put together from all roles with its label."""
    labels = {_label(also_in): "true"} if also_in else {}
    return name, {"metadata": {"labels": labels}, "aggregationRule": _aggregate(name)}


def _for_all(verbs: list[str]) -> list[Object]:
    return [{"apiGroups": [group], "resources": names, "verbs": verbs} for group, names in _NAMESPACED.items()]


# By name; the content of a ClusterRole.
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
    _part("view", _for_all(_READ)),
    _part("edit", [
        *_for_all(_WRITE),
        {"apiGroups": [""], "resources": ["secrets"], "verbs": [*_READ, *_WRITE]},
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
    ]),
    _part("admin", [
        {"apiGroups": [RBAC], "resources": ["roles", "rolebindings"], "verbs": [*_READ, *_WRITE]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["localsubjectaccessreviews"], "verbs": ["create"]},
    ]),
    _whole("view", also_in="edit"),
    _whole("edit", also_in="admin"),
    _whole("admin"),
)  # fmt: skip

# Each role is bound by a binding of its name, to these groups.
CLUSTER_ROLE_BINDINGS = (
    ("system:public-info-viewer", (AUTHENTICATED, UNAUTHENTICATED)),
    ("system:discovery", (AUTHENTICATED,)),
    ("system:basic-user", (AUTHENTICATED,)),
    ("cluster-admin", (MASTERS,)),
)

# Whoever serves an API behind this one must know how the front proxy is recognised.
AUTHENTICATION_READER = (
    "extension-apiserver-authentication-reader",
    {"rules": [{
        "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["extension-apiserver-authentication"],
        "verbs": _READ,
    }]},
)  # fmt: skip
