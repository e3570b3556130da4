"""ValidatingAdmissionPolicies for the scale subresource: a running object gets no more pods by it.

A webhook cannot refuse that: it gets a Scale, which has neither the queue label nor the suspend field. A policy can
read the object itself, as its parameter. All objects of the kind in the namespace of the request are its parameters,
one after the other, and the object that is scaled is among them. Without such a policy, before Kubernetes 1.30, the
object is evicted when it has more pods than quota.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.kinds import all_kinds, frameworks_known
from admission.kinds.abilities import has_scale, suspend_fields
from webhooks.expressions import is_not_updated_by, is_queued, is_suspended
from webhooks.policy_objects import VALIDATING, validation, with_binding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from admission.kinds.base import Kind, Object
    from webhooks.scope import Scope


def scale_policy_names() -> list[str]:
    """Return the names of the policies of all kinds that Sluice knows."""
    return [_name(kind) for kind in all_kinds(frameworks=frameworks_known()) if has_scale(kind)]


def scaled_versions(kinds: Iterable[Kind]) -> set[str]:
    """Return the API versions, such as `kubeflow.org/v1`, whose resources decide which of the kinds have a policy."""
    return {f"{kind.group}/{version}" for kind in kinds if has_scale(kind) for version in kind.versions}


def _name(kind: Kind) -> str:
    return f"{kind.plural}.scale.sluice.dev"


def scale_policies(kinds: Iterable[Kind], scope: Scope, served: Collection[str]) -> list[Object]:
    """Return the policies, each followed by its binding. `served`: resources of their `scaled_versions`."""
    policies: list[Object] = []
    for kind in kinds:
        resource = f"{kind.plural}/scale"
        if not has_scale(kind) or resource not in served:
            continue
        raised = " > ".join(
            f"(has({each}.spec) && has({each}.spec.replicas) ? {each}.spec.replicas : 0)"
            for each in ("object", "oldObject")
        )
        is_running = f"!{is_suspended('params', suspend_fields(kind))}"
        is_it = f"params.metadata.name == request.name && {is_queued('params', [kind])} && {is_running}"
        rule = {
            "apiGroups": [kind.group],
            "apiVersions": [*kind.versions],
            "operations": ["UPDATE"],
            "resources": [resource],
            "scope": "Namespaced",
        }
        message = (
            f"spec.replicas: a running {kind.kind} gets no more pods than it has quota for; to ask for more, suspend "
            "it and change the number in one request"
        )
        policy, binding = with_binding(
            VALIDATING,
            _name(kind),
            {"namespaceSelector": scope.namespaces(), "resourceRules": [rule]},
            conditions=[raised, is_not_updated_by(scope.own_usernames)],
            spec={
                # What it lets pass the controller evicts.
                "failurePolicy": "Ignore",
                "paramKind": {"apiVersion": f"{kind.group}/{kind.versions[0]}", "kind": kind.kind},
                "validations": [validation(f"!({is_it})", message=message)],
            },
        )
        binding["spec"]["paramRef"] = {"selector": {}, "parameterNotFoundAction": "Allow"}
        policies += [policy, binding]
    return policies
