"""Strategy for webhook configurations: defaulting and validation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.apiserver.cel import MATCH_VARIABLES, CelError, compile_expression
from admission.sandbox.apiserver.errors import Cause, invalid, required, unsupported
from admission.sandbox.apiserver.metadata import DNS_SUBDOMAIN
from admission.sandbox.apiserver.strategy import Strategy

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry

_SIDE_EFFECTS = ("None", "NoneOnDryRun")


class WebhookConfigurations(Strategy):
    """Strategy for MutatingWebhookConfiguration and ValidatingWebhookConfiguration."""

    def __init__(self, *, mutating: bool) -> None:
        self._mutating = mutating

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

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        return self.validate_create(registry, new)

    def after_write(self, registry: ObjectRegistry, new: Object | None, old: Object | None) -> None:
        registry.admission.configuration_changed(new, old)


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
