"""Strategies for webhook configurations, admission policies and their bindings: defaulting and validation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.admission.policies import compile_policy_expression
from admission.sandbox.apiserver.cel import MATCH_VARIABLES, CelError, compile_expression
from admission.sandbox.apiserver.errors import Cause, forbidden, invalid, required, unsupported
from admission.sandbox.apiserver.metadata import DNS_SUBDOMAIN
from admission.sandbox.apiserver.strategy import Strategy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry

_SIDE_EFFECTS = ("None", "NoneOnDryRun")


class _Configuration(Strategy):
    """Common part: kinds that exist for mutation and for validation, and which the admission chain follows."""

    def __init__(self, *, mutating: bool) -> None:
        self._mutating = mutating

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        return self.validate_create(registry, new)

    def after_write(self, registry: ObjectRegistry, new: Object | None, old: Object | None) -> None:
        registry.admission.configuration_changed(new, old)


class WebhookConfigurations(_Configuration):
    """Strategy for MutatingWebhookConfiguration and ValidatingWebhookConfiguration."""

    def default(self, obj: Object) -> None:
        for hook in obj.get("webhooks", ()):
            hook.setdefault("failurePolicy", "Fail")
            hook.setdefault("matchPolicy", "Equivalent")
            hook.setdefault("namespaceSelector", {})
            hook.setdefault("objectSelector", {})
            hook.setdefault("timeoutSeconds", 10)
            for rule in hook.get("rules", ()):
                rule.setdefault("scope", "*")
            service = hook.get("clientConfig", {}).get("service")
            if service is not None:
                service.setdefault("port", 443)
            if self._mutating:
                hook.setdefault("reinvocationPolicy", "Never")

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        causes = []
        for index, hook in enumerate(obj.get("webhooks", ())):
            causes += _hook_causes(hook, f"webhooks[{index}]")
        return causes


def _hook_causes(hook: Object, field: str) -> list[Cause]:
    causes = []
    name = hook.get("name", "")
    if not DNS_SUBDOMAIN.fullmatch(name) or name.count(".") < 2:
        causes.append(
            invalid(f"{field}.name", name, "should be a domain with at least three segments separated by dots")
        )
    versions = hook.get("admissionReviewVersions", [])
    if not versions:
        causes.append(required(f"{field}.admissionReviewVersions", "must specify one of v1, v1beta1"))
    elif not {"v1", "v1beta1"} & set(versions):
        text = "must include at least one of v1, v1beta1"
        causes.append(invalid(f"{field}.admissionReviewVersions", versions, text))
    effects = hook.get("sideEffects")
    if effects is None:
        causes.append(required(f"{field}.sideEffects", "must specify one of None, NoneOnDryRun"))
    elif effects not in _SIDE_EFFECTS:
        causes.append(unsupported(f"{field}.sideEffects", effects, _SIDE_EFFECTS))
    if not 1 <= hook["timeoutSeconds"] <= 30:
        causes.append(
            invalid(
                f"{field}.timeoutSeconds", hook["timeoutSeconds"], "the timeout value must be between 1 and 30 seconds"
            )
        )
    if hook["failurePolicy"] not in ("Fail", "Ignore"):
        causes.append(unsupported(f"{field}.failurePolicy", hook["failurePolicy"], ("Fail", "Ignore")))
    return causes + _client_causes(hook.get("clientConfig", {}), f"{field}.clientConfig") + _cel_causes(hook, field)


def _client_causes(client: Object, field: str) -> list[Cause]:
    url = client.get("url")
    if (url is None) == ("service" not in client):
        return [required(field, "exactly one of url or service is required")]
    if url is not None and not url.startswith("https://"):
        return [invalid(f"{field}.url", url, "'https' is the only allowed URL scheme")]
    return []


def _cel_causes(hook: Object, field: str) -> list[Cause]:
    causes = []
    for index, condition in enumerate(hook.get("matchConditions", ())):
        try:
            compile_expression(condition.get("expression", ""), MATCH_VARIABLES)
        except CelError as error:
            causes.append(
                invalid(f"{field}.matchConditions[{index}].expression", condition.get("expression"), str(error))
            )
    return causes


_REASONS = ("Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge")


class AdmissionPolicies(_Configuration):
    """Strategy for MutatingAdmissionPolicy and ValidatingAdmissionPolicy."""

    def default(self, obj: Object) -> None:
        spec = obj.get("spec", {})
        spec.setdefault("failurePolicy", "Fail")
        if self._mutating:
            spec.setdefault("reinvocationPolicy", "Never")
        if "matchConstraints" in spec:
            _default_resources(spec["matchConstraints"])

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        return list(self._causes(obj.get("spec", {})))

    def _causes(self, spec: Object) -> Iterator[Cause]:
        if "paramKind" in spec and self._mutating:
            yield forbidden("spec.paramKind", "the sandbox does not support parameters of mutating policies")
        if not spec.get("matchConstraints", {}).get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")
        for index, condition in enumerate(spec.get("matchConditions", ())):
            yield from _compiled(condition, f"spec.matchConditions[{index}]", MATCH_VARIABLES)
        for index, variable in enumerate(spec.get("variables", ())):
            yield from _compiled(variable, f"spec.variables[{index}]")
        if self._mutating:
            yield from _mutation_causes(spec)
        else:
            yield from _validation_causes(spec)


class AdmissionPolicyBindings(_Configuration):
    """Strategy for MutatingAdmissionPolicyBinding and ValidatingAdmissionPolicyBinding."""

    def default(self, obj: Object) -> None:
        if (resources := obj.get("spec", {}).get("matchResources")) is not None:
            _default_resources(resources)

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        spec = obj.get("spec", {})
        causes = []
        if not spec.get("policyName"):
            causes.append(required("spec.policyName"))
        if (ref := spec.get("paramRef")) is not None:
            if ("name" in ref) == ("selector" in ref):
                causes.append(required("spec.paramRef.name", "one of name or selector must be specified"))
            if "parameterNotFoundAction" not in ref:
                causes.append(required("spec.paramRef.parameterNotFoundAction"))
        if not self._mutating:
            actions = spec.get("validationActions", [])
            if not actions:
                causes.append(required("spec.validationActions", "at least one validation action is required"))
            if {"Deny", "Warn"} <= set(actions):
                text = "must not contain both Deny and Warn (repeating the same validation failure information)"
                causes.append(invalid("spec.validationActions", actions, text))
        return causes


def _default_resources(resources: Object) -> None:
    resources.setdefault("matchPolicy", "Equivalent")
    resources.setdefault("namespaceSelector", {})
    resources.setdefault("objectSelector", {})
    for rule in (*resources.get("resourceRules", ()), *resources.get("excludeResourceRules", ())):
        rule.setdefault("scope", "*")


def _mutation_causes(spec: Object) -> Iterator[Cause]:
    if not spec.get("mutations"):
        yield required("spec.mutations", "mutations must contain at least one item")
    for index, mutation in enumerate(spec.get("mutations", ())):
        field, patch_type = f"spec.mutations[{index}]", mutation.get("patchType", "")
        by_type = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
        if patch_type not in by_type:
            yield unsupported(f"{field}.patchType", patch_type, tuple(by_type))
        elif by_type[patch_type] not in mutation:
            yield required(f"{field}.{by_type[patch_type]}")
        else:
            yield from _compiled(mutation[by_type[patch_type]], f"{field}.{by_type[patch_type]}")


def _validation_causes(spec: Object) -> Iterator[Cause]:
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        yield required("spec.validations", "validations or auditAnnotations must contain at least one item")
    for index, validation in enumerate(spec.get("validations", ())):
        field = f"spec.validations[{index}]"
        yield from _compiled(validation, field)
        if "messageExpression" in validation:
            yield from _compiled({"expression": validation["messageExpression"]}, field, key="messageExpression")
        if "\n" in validation.get("message", ""):
            yield invalid(f"{field}.message", validation["message"], "message must not contain line breaks")
        if (reason := validation.get("reason", "Invalid")) not in _REASONS:
            yield unsupported(f"{field}.reason", reason, _REASONS)


def _compiled(
    holder: Object, field: str, variables: tuple[str, ...] | None = None, *, key: str = "expression"
) -> Iterator[Cause]:
    text = holder.get("expression", "")
    try:
        if variables is None:
            compile_policy_expression(text)
        else:
            compile_expression(text, variables)
    except CelError as error:
        yield invalid(f"{field}.{key}", text, str(error))
