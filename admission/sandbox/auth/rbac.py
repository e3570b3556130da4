"""RBAC authorizer: attributes of requests, and their evaluation by the stored roles and bindings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.apiserver.objects import labels_of
from admission.sandbox.apiserver.selectors import requirements_of
from admission.sandbox.apiserver.strategy import Strategy
from admission.sandbox.auth.users import MASTERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry
    from admission.sandbox.apiserver.requests import User
    from admission.sandbox.apiserver.storage import StoredCollection

RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class RequestAttributes:
    """Attributes of a request: a resource (`resource` may be `jobs/status`), or a `path` if `resource` is empty."""

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    def forbidden(self, user: User, *, verb: str = "") -> ApiError:
        """Return the 403 for a user who lacks the permission; `verb` replaces the verb in the message."""
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
    """RBAC over the stored roles and bindings; the group system:masters is allowed everything."""

    def __init__(self, registry: ObjectRegistry) -> None:
        self._registry = registry
        self._decisions: dict[tuple[User, RequestAttributes], str | None] = {}
        for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings"):
            registry.store.collections[RBAC, plural].subscribe(self._decisions.clear)

    def check(self, user: User, attributes: RequestAttributes) -> None:
        """Raise ApiError (403) unless the user is allowed the request."""
        if self.reason(user, attributes) is None:
            raise attributes.forbidden(user)

    def reason(self, user: User, attributes: RequestAttributes) -> str | None:
        """Return why the user is allowed the request (empty for system:masters); None: not allowed."""
        if MASTERS in user.groups:
            return ""
        key = (user, attributes)
        if key not in self._decisions:
            if len(self._decisions) > 10_000:
                self._decisions.clear()
            self._decisions[key] = self._decide(user, attributes)
        return self._decisions[key]

    @property
    def decisions(self) -> dict[tuple[str, RequestAttributes], str | None]:
        """Decisions since roles or bindings were last written: `(user name, attributes)` to `reason`'s result."""
        return {(user.name, attributes): reason for (user, attributes), reason in self._decisions.items()}

    def _decide(self, user: User, attributes: RequestAttributes) -> str | None:
        for kind, binding, rules in self._bindings(user, attributes.namespace):
            if any(_rule_allows(rule, attributes) for rule in rules):
                reference = binding["roleRef"]
                name = binding["metadata"]["name"]
                return f'RBAC: allowed by {kind} "{name}" of {reference["kind"]} "{reference["name"]}"'
        return None

    def rules(self, user: User, namespace: str) -> list[Object]:
        """Return all rules that apply to the user in a namespace."""
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


def _rule_allows(rule: Object, attributes: RequestAttributes) -> bool:
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


class Roles(Strategy):
    """Strategy for all kinds of rbac.authorization.k8s.io/v1: names need only be path segments, like `system:admin`."""

    has_generation = False

    def name_fault(self, name: str) -> str:
        if name in (".", ".."):
            return f"may not be '{name}'"
        return next((f"may not contain '{part}'" for part in "/%" if part in name), "")


class RoleBindings(Roles):
    """Strategy for RoleBinding and ClusterRoleBinding."""

    def default(self, obj: Object) -> None:
        for subject in obj.get("subjects", ()):
            if subject.get("kind") in ("User", "Group"):
                subject.setdefault("apiGroup", RBAC)
        obj.get("roleRef", {}).setdefault("apiGroup", RBAC)


class ClusterRoles(Roles):
    """Strategy for ClusterRole; it also does the work of the clusterrole-aggregation controller."""

    def after_write(self, registry: ObjectRegistry, new: Object | None, old: Object | None) -> None:
        aggregate(registry)


def aggregate(registry: ObjectRegistry) -> None:
    """Update the rules of all aggregated ClusterRoles from the roles that they select, until none changes."""
    collection = registry.store.collections[RBAC, "clusterroles"]
    settled = False
    while not settled:
        settled = True
        for version in list(collection.versions()):
            if "aggregationRule" not in version.obj:
                continue
            known, rules = version.obj.get("rules", []), _aggregated_rules(version.obj, collection)
            if len(known) != len(rules) or any(rule not in known for rule in rules):
                metadata = dict(version.obj["metadata"])
                collection.put({**version.obj, "metadata": metadata, "rules": rules}, version)
                settled = False


def _aggregated_rules(role: Object, collection: StoredCollection) -> list[Object]:
    """Return the distinct rules of all other roles that the aggregation rule selects."""
    selectors = [requirements_of(each) for each in role["aggregationRule"].get("clusterRoleSelectors", ())]
    rules: list[Object] = []
    for version in collection.versions():
        other = version.obj
        if other["metadata"]["name"] == role["metadata"]["name"]:
            continue
        if any(all(each.holds(labels_of(other)) for each in selector) for selector in selectors):
            rules += [rule for rule in other.get("rules", ()) if rule not in rules]
    return rules
