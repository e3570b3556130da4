"""ValidatingAdmissionPolicies for the scale subresource: a running object gets no more pods by it.

A webhook cannot refuse that: it gets a Scale, which has neither the queue label nor the suspend field. A policy can
read the object itself, as its parameter. All objects of the kind in the namespace of the request are its parameters,
one after the other, and the object that is scaled is among them. Without such a policy, before Kubernetes 1.30, the
object is evicted when it has more pods than quota.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.kinds.declared import DeclaredKind
from webhooks.expressions import is_not_updated_by, is_queued, is_suspended
from webhooks.policy_objects import VALIDATING, validation, with_binding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from admission.kinds.base import Kind, Object
    from webhooks.scope import Scope

SCALABLE: Final = ("pytorchjobs", "paddlejobs")
"""Kinds of kubeflow.org/v1 whose definition has the subresource (training-operator 1.9); it sets the workers."""
GROUP_VERSION: Final = "kubeflow.org/v1"
SCALE_POLICIES: Final = tuple(f"{plural}.scale.sluice.dev" for plural in SCALABLE)


def scale_policies(kinds: Iterable[Kind], scope: Scope, served: Collection[str]) -> list[Object]:
    """Return the policies, each followed by its binding. `served`: resources that the API server has of that group."""
    policies: list[Object] = []
    for kind in kinds:
        resource = f"{kind.plural}/scale"
        if f"{kind.group}/v1" != GROUP_VERSION or kind.plural not in SCALABLE or resource not in served:
            continue
        assert isinstance(kind, DeclaredKind), kind
        raised = " > ".join(
            f"(has({each}.spec) && has({each}.spec.replicas) ? {each}.spec.replicas : 0)"
            for each in ("object", "oldObject")
        )
        is_running = f"!{is_suspended('params', (kind.form.suspend, *kind.form.suspend_older))}"
        is_it = f"params.metadata.name == request.name && {is_queued('params', [kind])} && {is_running}"
        rule = {
            "apiGroups": [kind.group],
            "apiVersions": ["v1"],
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
            f"{kind.plural}.scale.sluice.dev",
            {"namespaceSelector": scope.namespaces(), "resourceRules": [rule]},
            conditions=[raised, is_not_updated_by(scope.own_usernames)],
            spec={
                # What it lets pass the controller evicts.
                "failurePolicy": "Ignore",
                "paramKind": {"apiVersion": GROUP_VERSION, "kind": kind.kind},
                "validations": [validation(f"!({is_it})", message=message)],
            },
        )
        binding["spec"]["paramRef"] = {"selector": {}, "parameterNotFoundAction": "Allow"}
        policies += [policy, binding]
    return policies
