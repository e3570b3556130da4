"""Who asks, and what they may: tokens, impersonation, RBAC."""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.sandbox.clock import rfc3339
from admission.sandbox.errors import ApiError, bad_request, invalid, not_found, unprocessable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from admission.sandbox.objects import Object
    from admission.sandbox.registry import Registry

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
AUDIENCE = "https://kubernetes.default.svc"
RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class User:
    """A user; `groups` and `extra` as admission reviews show them."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def info(self) -> Object:
        """The user as reviews show it."""
        shown: Object = {"username": self.name}
        if self.uid:
            shown["uid"] = self.uid
        if self.groups:
            shown["groups"] = list(self.groups)
        if self.extra:
            shown["extra"] = {key: list(values) for key, values in self.extra}
        return shown


def named_user(name: str) -> User:
    """A user known by its name alone; service accounts have groups by their name."""
    if name in _COMPONENTS:
        return _COMPONENTS[name]
    if name == ANONYMOUS.name:
        return ANONYMOUS
    parts = name.split(":")
    if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4:
        return User(name, groups=("system:serviceaccounts", f"system:serviceaccounts:{parts[2]}", AUTHENTICATED))
    return User(name, groups=(AUTHENTICATED,))


_COMPONENTS = {"system:kube-controller-manager": User("system:kube-controller-manager", "2", (MASTERS, AUTHENTICATED))}
ANONYMOUS = User("system:anonymous", groups=(UNAUTHENTICATED,))
DEFAULT_USERS: dict[str, User] = {
    "admin-token": User("admin", "1", (MASTERS, AUTHENTICATED)),
    "alice-token": User("alice", "4", ("team-a", AUTHENTICATED)),
    "bob-token": User("bob", "5", ("team-b", AUTHENTICATED)),
    "sluice-token": User("sluice", "6", (MASTERS, AUTHENTICATED)),
}


@dataclass(frozen=True, slots=True)
class Issued:
    """A token that was made for a service account."""

    user: User
    audiences: tuple[str, ...]
    is_valid: Callable[[], bool]


class Authenticator:
    """Bearer tokens: static ones, and those issued to service accounts."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self.users = dict(users)
        self._issued: dict[str, Issued] = {}

    def user(self, token: str, audience: str = AUDIENCE) -> User | None:
        """Whom a token stands for, or None."""
        issued = self._issued.get(token)
        if issued is not None:
            return issued.user if audience in issued.audiences and issued.is_valid() else None
        return self.users.get(token) if audience == AUDIENCE else None

    def issue(self, registry: Registry, namespace: str, name: str, body: Object) -> Object:
        """A TokenRequest for a service account, answered. Raises ApiError (404, 422)."""
        account = registry.find("", "serviceaccounts", namespace, name)
        if account is None:
            raise not_found(registry.resources["", "v1", "serviceaccounts"], name)
        spec = body.get("spec") or {}
        seconds, audiences = spec.get("expirationSeconds", 3600), spec.get("audiences") or [AUDIENCE]
        if seconds < 600:
            cause = invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
            raise unprocessable("authentication.k8s.io", "TokenRequest", "", [cause])
        bound = spec.get("boundObjectRef")
        if bound and registry.find("", "pods", namespace, bound.get("name", "")) is None:
            raise not_found(registry.resources["", "v1", "pods"], bound.get("name", ""))
        metadata = account["metadata"]
        ends = registry.clock.now() + seconds
        who = named_user(f"system:serviceaccount:{namespace}:{name}")
        credential = (("authentication.kubernetes.io/credential-id", (f"JTI={uuid.uuid4()}",)),)
        token = secrets.token_urlsafe(32)

        def is_valid() -> bool:
            current = registry.find("", "serviceaccounts", namespace, name)
            return current is not None and current["metadata"]["uid"] == metadata["uid"] and registry.clock.now() < ends

        self._issued[token] = Issued(
            User(who.name, metadata["uid"], who.groups, credential), tuple(audiences), is_valid
        )
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": metadata["uid"],
                "creationTimestamp": registry.now(),
            },
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound},
            "status": {"token": token, "expirationTimestamp": rfc3339(ends)},
        }

    def authenticate(self, headers: Mapping[str, str]) -> User:
        """The user of a request; anonymous without a token. Raises ApiError (401) for a wrong one."""
        kind, _, token = headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token:
            return ANONYMOUS
        user = self.user(token.strip())
        if user is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return user


def impersonated(headers: Mapping[str, str]) -> User | None:
    """The user whom the request asks to be, or None. Raises ApiError (400)."""
    name = uid = None
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}
    for header, value in headers.items():
        lower = header.lower()
        if lower == "impersonate-user":
            name = value
        elif lower == "impersonate-group":
            groups = (*groups, value)
        elif lower == "impersonate-uid":
            uid = value
        elif lower.startswith("impersonate-extra-"):
            key = lower.removeprefix("impersonate-extra-")
            extra[key] = (*extra.get(key, ()), value)
    if name is None:
        if groups or uid or extra:
            raise bad_request("requested groups, uid or extra without impersonating a user name")
        return None
    default = named_user(name)
    found = default.groups
    if groups and default is not ANONYMOUS:
        found = (*groups, AUTHENTICATED) if AUTHENTICATED not in groups else groups
    return User(name, uid or "", found, tuple(sorted(extra.items())))


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is asked for: a resource (`resource` may be `jobs/status`), or a path when `resource` is empty."""

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    def refusal(self, user: User, *, verb: str = "") -> ApiError:
        """The 403 for a user without the right; `verb` replaces the one that is shown."""
        shown = verb or self.verb
        if not self.resource:
            return ApiError(
                403, "Forbidden", f'forbidden: User "{user.name}" cannot {shown} path "{self.path}"', details={}
            )
        plural = self.resource.partition("/")[0]
        qualified = f"{plural}.{self.group}" if self.group else plural
        subject = f'{qualified} "{self.name}"' if self.name else qualified
        scope = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        text = (
            f'{subject} is forbidden: User "{user.name}" cannot {shown} resource "{self.resource}" '
            f'in API group "{self.group}" {scope}'
        )
        details = {key: value for key, value in (("name", self.name), ("group", self.group), ("kind", plural)) if value}
        return ApiError(403, "Forbidden", text, details=details)


class Authorizer:
    """RBAC over the stored roles and bindings; masters may everything."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._decisions: dict[tuple[User, Attributes], str | None] = {}
        for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings"):
            registry.store.collections[RBAC, plural].subscribe(self._decisions.clear)

    def check(self, user: User, attributes: Attributes) -> None:
        """Raises ApiError (403) unless the user may."""
        if self.reason(user, attributes) is None:
            raise attributes.refusal(user)

    def reason(self, user: User, attributes: Attributes) -> str | None:
        """Why the user may (empty for masters), or None."""
        if MASTERS in user.groups:
            return ""
        key = (user, attributes)
        if key not in self._decisions:
            if len(self._decisions) > 10_000:
                self._decisions.clear()
            self._decisions[key] = self._decide(user, attributes)
        return self._decisions[key]

    def _decide(self, user: User, attributes: Attributes) -> str | None:
        for kind, binding, rules in self._bindings(user, attributes.namespace):
            if any(_rule_allows(rule, attributes) for rule in rules):
                reference = binding["roleRef"]
                name = binding["metadata"]["name"]
                return f'RBAC: allowed by {kind} "{name}" of {reference["kind"]} "{reference["name"]}"'
        return None

    def rules(self, user: User, namespace: str) -> list[Object]:
        """All rules that apply to the user in a namespace."""
        if MASTERS in user.groups:
            everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
            return [everything, {"verbs": ["*"], "nonResourceURLs": ["*"]}]
        return [rule for _, _, rules in self._bindings(user, namespace) for rule in rules]

    def _bindings(self, user: User, namespace: str) -> Iterator[tuple[str, Object, list[Object]]]:
        collections = self._registry.store.collections
        candidates = [
            ("ClusterRoleBinding", version.obj) for version in collections[RBAC, "clusterrolebindings"].versions()
        ]
        if namespace:
            found = collections[RBAC, "rolebindings"].versions(namespace)
            candidates += [("RoleBinding", version.obj) for version in found]
        for kind, binding in candidates:
            if any(_subject_is(subject, user, namespace) for subject in binding.get("subjects", ())):
                reference = binding["roleRef"]
                is_role = reference["kind"] == "Role"
                role = self._registry.find(
                    RBAC, "roles" if is_role else "clusterroles", namespace if is_role else "", reference["name"]
                )
                if role is not None:
                    yield kind, binding, role.get("rules", [])


def _subject_is(subject: Object, user: User, namespace: str) -> bool:
    match subject["kind"]:
        case "User":
            return bool(subject["name"] == user.name)
        case "Group":
            return subject["name"] in user.groups
        case "ServiceAccount":
            owner = subject.get("namespace", namespace)
            return user.name == f"system:serviceaccount:{owner}:{subject['name']}"
        case _:
            return False


def _rule_allows(rule: Object, attributes: Attributes) -> bool:
    if not _covers(rule.get("verbs", ()), attributes.verb):
        return False
    if not attributes.resource:
        return any(
            path == "*" or path == attributes.path or (path.endswith("*") and attributes.path.startswith(path[:-1]))
            for path in rule.get("nonResourceURLs", ())
        )
    if not _covers(rule.get("apiGroups", ()), attributes.group):
        return False
    names = rule.get("resourceNames", ())
    if names and attributes.name not in names:
        return False
    resources = rule.get("resources", ())
    sub = attributes.resource.partition("/")[2]
    return _covers(resources, attributes.resource) or bool(sub and f"*/{sub}" in resources)


def _covers(patterns: list[str] | tuple[()], value: str) -> bool:
    return "*" in patterns or value in patterns


_INFO_PATHS = ["/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*", "/version", "/version/"]
_DISCOVERY_PATHS = [*_INFO_PATHS, "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]
# The cluster roles that every cluster is born with, as far as they matter here, and the groups that hold them.
FIRST_ROLES: tuple[tuple[str, list[Object], tuple[str, ...]], ...] = (
    (
        "system:public-info-viewer",
        [{"nonResourceURLs": _INFO_PATHS, "verbs": ["get"]}],
        (AUTHENTICATED, UNAUTHENTICATED),
    ),
    ("system:discovery", [{"nonResourceURLs": _DISCOVERY_PATHS, "verbs": ["get"]}], (AUTHENTICATED,)),
    (
        "system:basic-user",
        [
            {
                "apiGroups": ["authorization.k8s.io"],
                "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                "verbs": ["create"],
            },
            {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
        ],
        (AUTHENTICATED,),
    ),
    (
        "cluster-admin",
        [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}],
        (MASTERS,),
    ),
)
