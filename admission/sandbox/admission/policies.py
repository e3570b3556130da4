"""Admission policies: mutation and validation of requests by CEL expressions within the API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.sandbox.admission.matching import (
    ConditionFailed,
    Conditions,
    Constraints,
    Review,
    conditions_match,
    conditions_of,
)
from admission.sandbox.apiserver import errors
from admission.sandbox.apiserver.cel import (
    MATCH_VARIABLES,
    CelError,
    compile_expression,
    evaluate,
    structs_as_maps,
    value_of,
)
from admission.sandbox.apiserver.decoding import complete
from admission.sandbox.apiserver.objects import labels_of
from admission.sandbox.apiserver.patch import json_patch, strategic_merge
from admission.sandbox.apiserver.schema import DecodeError
from admission.sandbox.apiserver.selectors import requirements_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import cel

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry

POLICY_VARIABLES = (*MATCH_VARIABLES, "namespaceObject", "params", "variables", "jsonpatch")
_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}


@dataclass(frozen=True, slots=True, eq=False)
class StoredPolicy:
    """A policy with one of its bindings; its expressions are compiled."""

    kind: str
    name: str
    spec: Object
    constraints: Constraints
    conditions: Conditions
    variables: dict[str, cel.Program]
    binding: str
    binding_constraints: Constraints | None
    actions: tuple[str, ...]
    param_ref: Object
    """Which objects of the policy's `paramKind` are its parameters, one after the other."""

    @property
    def fails_closed(self) -> bool:
        return bool(self.spec["failurePolicy"] == "Fail")

    def denial(self, message: str) -> str:
        return f"{self.kind} '{self.name}' with binding '{self.binding}' denied request: {message}"


class Policies:
    """All policies that are in force and have a binding."""

    def __init__(self, registry: ObjectRegistry, in_force: Callable[[str], list[Object]]) -> None:
        self._registry = registry
        self._in_force = in_force
        self._mutating: list[StoredPolicy] = []
        self._validating: list[StoredPolicy] = []

    def reload(self) -> None:
        """Compile the policies and bindings again after one of them changed."""
        self._mutating = list(self._read("MutatingAdmissionPolicy"))
        self._validating = list(self._read("ValidatingAdmissionPolicy"))

    def _read(self, kind: str) -> Iterator[StoredPolicy]:
        bindings = self._in_force(f"{kind}Binding")
        for policy in self._in_force(kind):
            for binding in bindings:
                if binding["spec"]["policyName"] == policy["metadata"]["name"]:
                    yield _policy(policy, binding)

    # ------------------------------------------------------------------ mutation and validation

    def mutate(self, review: Review, new: Object, *, again: bool = False) -> Object:
        """Return the object after the mutating policies. Raises ApiError.

        `again`: reinvocation, of policies with reinvocationPolicy IfNeeded only.
        """
        for policy in self._mutating:
            if again and policy.spec["reinvocationPolicy"] != "IfNeeded":
                continue
            try:
                if self._matches(policy, review, new):
                    for mutation in policy.spec["mutations"]:
                        new = self._mutated(policy, mutation, review, new)
            except CelError as error:
                if policy.fails_closed:
                    raise _denial(review, new, policy.denial(str(error)), "") from error
        return new

    def validate(self, review: Review, new: Object | None) -> None:
        """Run all validating policies. Raises ApiError for the first denial, after all warnings were collected."""
        denial: errors.ApiError | None = None
        for policy in self._validating:
            for message, reason in self._objections(policy, review, new):
                if "Warn" in policy.actions:
                    binding = f"{policy.kind} '{policy.name}' with binding '{policy.binding}'"
                    review.call.warnings.append(f"Validation failed for {binding}: {message}")
                if "Deny" in policy.actions and denial is None:
                    denial = _denial(review, new, policy.denial(message), reason)
        if denial is not None:
            raise denial

    # ------------------------------------------------------------------ one policy

    def _matches(self, policy: StoredPolicy, review: Review, new: Object | None) -> bool:
        """Return whether policy and binding match the request. Raises ConditionFailed."""
        if not policy.constraints.match(self._registry, review, new):
            return False
        narrower = policy.binding_constraints
        if narrower is not None and not narrower.match(self._registry, review, new):
            return False
        return conditions_match(policy.conditions, review, new)

    def _objections(self, policy: StoredPolicy, review: Review, new: Object | None) -> Iterator[tuple[str, str]]:
        """Yield (message, reason) of each validation that is false, or that fails under failurePolicy Fail."""
        try:
            if not self._matches(policy, review, new):
                return
        except ConditionFailed as error:
            if policy.fails_closed:
                yield str(error), ""
            return
        values = self._values(policy, review, new)
        try:
            params = self._params(policy, review)
        except CelError as error:
            if policy.fails_closed:
                yield str(error), ""
            return
        for each in params:
            yield from _false_validations(policy, {**values, "params": each})

    def _params(self, policy: StoredPolicy, review: Review) -> list[Object | None]:
        """Return the parameters with which a policy is evaluated, once for each; None without `paramKind`.

        Raises CelError if there are none, and there ought to be.
        """
        if "paramKind" not in policy.spec:
            return [None]
        wanted, ref = policy.spec["paramKind"], policy.param_ref
        group, _, version = wanted["apiVersion"].rpartition("/")
        names = (group, version, wanted["kind"])
        kinds = (each for each in self._registry.resources.values() if (each.group, each.version, each.kind) == names)
        if (resource := next(kinds, None)) is None:
            raise CelError(f"failed to find resource referenced by paramKind: '{wanted['apiVersion']}, {names[2]}'")
        namespace = ref.get("namespace", review.namespace) if resource.namespaced else None
        requirements = requirements_of(ref.get("selector", {}))
        found: list[Object | None] = [
            each.obj
            for each in self._registry.collection(resource).versions(namespace)
            if ref.get("name") in (None, each.obj["metadata"]["name"])
            and all(requirement.holds(labels_of(each.obj)) for requirement in requirements)
        ]
        if not found and ref["parameterNotFoundAction"] == "Deny":
            raise CelError("no params found for policy binding with `Deny` parameterNotFoundAction")
        return found

    def _mutated(self, policy: StoredPolicy, mutation: Object, review: Review, new: Object) -> Object:
        """Return the object after one mutation. Raises ApiError and CelError."""
        schema, values = review.resource.schema, self._values(policy, review, new)
        try:
            if mutation["patchType"] == "JSONPatch":
                program = compile_policy_expression(mutation["jsonPatch"]["expression"])
                changed: Object = json_patch(new, value_of(program, values))
            else:
                program = compile_policy_expression(mutation["applyConfiguration"]["expression"])
                changed = strategic_merge(new, value_of(program, values), schema.struct())
            schema.decode(changed, new, [])
        except (DecodeError, TypeError, AttributeError) as error:
            raise CelError(f"error applying patch: {error}") from error
        changed = complete(review.resource, changed)
        return new if changed == new else changed

    def _values(self, policy: StoredPolicy, review: Review, new: Object | None) -> Object:
        """Return the CEL variables of a policy's expressions, including its `variables`."""
        values = review.values(new)
        namespace = self._registry.find("", "namespaces", "", review.namespace) if review.namespace else None
        values |= {"namespaceObject": namespace, "params": None, "variables": {}, "jsonpatch": {}}
        for name, program in policy.variables.items():
            try:
                values["variables"][name] = value_of(program, values)
            except CelError:
                continue  # only an expression that reads the variable fails
        return values


def compile_policy_expression(text: str) -> cel.Program:
    """Compile an expression of a policy. Raises CelError."""
    return compile_expression(structs_as_maps(text), POLICY_VARIABLES)


def _false_validations(policy: StoredPolicy, values: Object) -> Iterator[tuple[str, str]]:
    """Yield (message, reason) of each validation that is false, or that fails under failurePolicy Fail."""
    for validation in policy.spec.get("validations", ()):
        text = validation["expression"]
        try:
            if evaluate(compile_policy_expression(text), values):
                continue
        except CelError as error:
            if policy.fails_closed:
                yield f"expression '{text}' resulted in error: {error}", ""
            continue
        yield _message(validation, values), validation.get("reason", "")


def _message(validation: Object, values: Object) -> str:
    if "messageExpression" in validation:
        try:
            message = value_of(compile_policy_expression(validation["messageExpression"]), values)
        except CelError:
            message = None
        if isinstance(message, str) and message.strip() and "\n" not in message:
            return message
    return str(validation.get("message") or f"failed expression: {validation['expression'].strip()}")


def _policy(policy: Object, binding: Object) -> StoredPolicy:
    spec = policy["spec"]
    narrower = binding["spec"].get("matchResources")
    return StoredPolicy(
        kind=policy["kind"],
        name=policy["metadata"]["name"],
        spec=spec,
        constraints=_constraints(spec["matchConstraints"]),
        conditions=conditions_of(spec),
        variables={each["name"]: compile_policy_expression(each["expression"]) for each in spec.get("variables", ())},
        binding=binding["metadata"]["name"],
        binding_constraints=_constraints(narrower) if narrower else None,
        actions=tuple(binding["spec"].get("validationActions", ())),
        param_ref=binding["spec"].get("paramRef", {}),
    )


_EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*", "*/*"]}
"""Rule of a binding without resourceRules, which matches all that its policy matches."""


def _constraints(spec: Object) -> Constraints:
    """Return match constraints; without resourceRules, which bindings may omit, they match all resources."""
    return Constraints.of(spec, spec.get("resourceRules") or (_EVERYTHING,), spec.get("excludeResourceRules", ()))


def _denial(review: Review, new: Object | None, message: str, reason: str) -> errors.ApiError:
    """Return the error of a denial. The text is the same for every reason; the default reason is Invalid (422)."""
    name = review.subject(new)
    text = f'{review.resource.qualified} "{name}" is forbidden: {message}'
    error = errors.denied(text, review.resource, name)
    error.reason = reason or "Invalid"
    error.code = _CODES.get(error.reason, 422)
    error.details = {**(error.details or {}), "causes": [{"message": message}]}
    return error
