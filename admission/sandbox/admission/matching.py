"""Matching of requests to webhooks and admission policies: rules, selectors and match conditions."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from admission.sandbox.apiserver.cel import MATCH_VARIABLES, CelError, compile_expression, conjuncts, evaluate
from admission.sandbox.apiserver.objects import labels_of
from admission.sandbox.apiserver.selectors import requirements_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import cel

    from admission.apimachinery.selectors import Requirement
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry
    from admission.sandbox.apiserver.requests import Call
    from admission.sandbox.apiserver.resources import ServedResource

GROUP = "admissionregistration.k8s.io"


@dataclass(frozen=True, slots=True)
class Review:
    """Attributes of a request for admission, except for the new object, which changes during mutation."""

    resource: ServedResource
    subresource: str
    operation: str
    name: str
    namespace: str
    old: Object | None
    call: Call

    @classmethod
    def of(
        cls, resource: ServedResource, subresource: str, operation: str, obj: Object, old: Object | None, call: Call,
        *, named: bool = True,
    ) -> Self:  # fmt: skip
        """Return the review of a request for `obj`; with `named` False the name is empty, as in a deletecollection."""
        metadata = obj["metadata"]
        namespace = "" if resource.key == ("", "namespaces") else metadata.get("namespace", "")
        return cls(resource, subresource, operation, metadata.get("name", "") if named else "", namespace, old, call)

    def body(self, new: Object | None) -> Object:
        """Return an AdmissionReview with a new uid."""
        resource = self.resource
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        kind = {"group": "autoscaling", "version": "v1", "kind": "Scale"} if self.subresource == "scale" else kind
        target = {"group": resource.group, "version": resource.version, "resource": resource.plural}
        request: Object = {"uid": str(uuid.uuid4()), "kind": kind, "resource": target}
        if self.subresource:
            request["subResource"] = self.subresource
        request["requestKind"] = kind
        request["requestResource"] = target
        if self.subresource:
            request["requestSubResource"] = self.subresource
        if self.name:
            request["name"] = self.name
        if self.namespace:
            request["namespace"] = self.namespace
        request["operation"] = self.operation
        request["userInfo"] = self.call.user.info()
        request["object"] = new
        request["oldObject"] = self.old
        request["dryRun"] = self.call.dry_run
        request["options"] = self.call.options
        return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}

    def values(self, new: Object | None) -> Object:
        """Return the CEL variables `object`, `oldObject` and `request`."""
        request = self.body(None)["request"]
        return {"object": new, "oldObject": self.old, "request": {k: v for k, v in request.items() if v is not None}}

    def subject(self, new: Object | None) -> str:
        """Return the object's name; empty while it has only a generateName."""
        name: str = (new or self.old or {}).get("metadata", {}).get("name", "")
        return name


@dataclass(frozen=True, slots=True, eq=False)
class Constraints:
    """Match constraints: resource rules, excluded rules, and selectors of namespaces and objects. All must match."""

    rules: tuple[Object, ...]
    excluded: tuple[Object, ...]
    namespaces: tuple[Requirement, ...]
    objects: tuple[Requirement, ...]

    @classmethod
    def of(cls, spec: Object, rules: Sequence[Object], excluded: Sequence[Object] = ()) -> Self:
        """Return the constraints of a webhook or of a policy's `matchConstraints`; `spec` has the selectors."""
        namespaces, objects = spec.get("namespaceSelector", {}), spec.get("objectSelector", {})
        return cls(tuple(rules), tuple(excluded), requirements_of(namespaces), requirements_of(objects))

    def match(self, registry: ObjectRegistry, review: Review, new: Object | None) -> bool:
        """Return whether a request matches. Objects that configure admission are exempt from admission themselves."""
        if review.resource.group == GROUP or not any(_rule_matches(rule, review) for rule in self.rules):
            return False
        if any(_rule_matches(rule, review) for rule in self.excluded):
            return False
        if self.namespaces and not self._namespace_matches(registry, review, new):
            return False
        return not self.objects or any(
            all(requirement.holds(labels_of(obj)) for requirement in self.objects)
            for obj in (new, review.old)
            if obj is not None
        )

    def _namespace_matches(self, registry: ObjectRegistry, review: Review, new: Object | None) -> bool:
        if review.namespace:
            found = registry.find("", "namespaces", "", review.namespace)
        elif review.resource.key == ("", "namespaces"):
            found = new or review.old
        else:
            return True
        labels = labels_of(found) if found else {}
        return all(requirement.holds(labels) for requirement in self.namespaces)


Conditions = tuple[tuple[str, tuple["cel.Program", ...]], ...]
"""Expressions, with the compiled operands of which each is the conjunction."""


class ConditionFailed(CelError):
    """Evaluation of a match condition failed."""


def conditions_of(spec: Object) -> Conditions:
    """Compile the match conditions of a webhook or a policy."""
    found = []
    for condition in spec.get("matchConditions", ()):
        text = condition["expression"]
        compile_expression(text, MATCH_VARIABLES)  # its errors are about the whole expression
        found.append((text, tuple(compile_expression(part, MATCH_VARIABLES) for part in conjuncts(text))))
    return tuple(found)


def conditions_match(conditions: Conditions, review: Review, new: Object | None) -> bool:
    """Return whether all match conditions are true. Raises ConditionFailed for an error, if none is false."""
    if not conditions:
        return True
    values = review.values(new)
    failed: tuple[str, CelError] | None = None
    for text, programs in conditions:
        for program in programs:
            try:
                if not evaluate(program, values):
                    return False
            except CelError as error:
                failed = failed or (text, error)
    if failed is None:
        return True
    text, fault = failed
    raise ConditionFailed(f"expression '{text}' resulted in error: {fault}") from fault


def _rule_matches(rule: Object, review: Review) -> bool:
    resource = review.resource
    if not _named(rule["operations"], review.operation) or not _named(rule["apiGroups"], resource.group):
        return False
    if not _named(rule["apiVersions"], resource.version):
        return False
    scope = rule.get("scope", "*")
    if scope != "*" and (scope == "Namespaced") != resource.namespaced:
        return False
    names = rule.get("resourceNames")
    if names and review.name not in names:
        return False
    return any(_resource_matches(pattern, resource.plural, review.subresource) for pattern in rule["resources"])


def _named(patterns: list[str], name: str) -> bool:
    return "*" in patterns or name in patterns


def _resource_matches(pattern: str, plural: str, subresource: str) -> bool:
    parent, slash, sub = pattern.partition("/")
    if parent not in ("*", plural):
        return False
    if not slash:
        return not subresource
    return sub in ("*", subresource)
