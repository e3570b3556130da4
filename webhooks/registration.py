"""MutatingWebhookConfiguration that registers the webhook with the API server (`webhooks.gate_reconciler` writes it).

The API server sends only objects with a queue label (at their creation also with a misspelled one), so that an outage
of Sluice does not affect other objects. Objects with a queue label are refused during an outage (failurePolicy Fail),
because an ungated Job would run outside of all quotas; those with a misspelled one, which are only warned of, are not.
Each creation is sent once; an update is sent only if it changes a field that the webhook evaluates. In managed
namespaces a further entry matches objects without a queue label.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import orjson

from admission.kinds.rules import framework
from webhooks.expressions import (
    ALIVE,
    condition,
    has_queue_label,
    has_queue_like_label,
    has_value,
    is_created_by_user,
    is_not_updated_by,
    label,
    touches_gated_fields,
)
from webhooks.policies import is_job, unlabelled, without_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.kinds.base import Kind, Object
    from admission.kinds.rules import QueueRule
    from webhooks.scope import Scope


@dataclass(frozen=True, slots=True)
class ServiceReference:
    """The Service of the webhook, if Sluice runs in the cluster."""

    namespace: str
    name: str
    port: int = 443

    def __str__(self) -> str:
        return f"the Service {self.namespace}/{self.name}, port {self.port}"


Endpoint: TypeAlias = str | ServiceReference
"""Address at which the API server calls the webhook: a Service, or a URL such as `https://192.0.2.1:9443`."""


@dataclass(frozen=True, slots=True)
class Registration:
    """Input of the MutatingWebhookConfiguration: gated kinds, endpoint and scope."""

    kinds: tuple[Kind, ...]
    endpoint: Endpoint
    scope: Scope

    def configuration(self, ca_bundle: bytes) -> Object:
        """Return the MutatingWebhookConfiguration.

        The mutating webhook also refuses invalid objects: a validating webhook would be a second call of equal cost.
        """
        # Separate entries for each kind: an error in the match condition of one kind must not affect the others.
        webhooks = [webhook for kind in self.kinds for webhook in self._labelled(kind, ca_bundle)]
        # These entries come last: an object that receives its queue label here needs no call of the entries above.
        # Deployments are left out: their pods receive the label instead, each by itself.
        unlabelled_kinds = [kind for kind in self.kinds if not kind.is_always_queued and kind.labelling is None]
        webhooks += [
            self._webhook(
                kind,
                "ruled",
                ca_bundle,
                [is_created_by_user(self.kinds) if kind.ends_by_deletion else "", *conditions],
                operations=["CREATE"],
                objects=without_label(kind),
            )
            for kind in unlabelled_kinds
            if (conditions := _ruled(kind, self.scope.rules))
        ]
        if self.scope.managed is not None:
            webhooks += [
                self._webhook(
                    kind, "managed", ca_bundle, self._deciding(kind, unlabelled(kind)), objects=without_label(kind)
                )
                for kind in unlabelled_kinds
                if framework(kind) not in self.scope.by_label
            ]
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "sluice", "labels": {"app.kubernetes.io/name": "sluice"}},
            "webhooks": webhooks,
        }

    def _labelled(self, kind: Kind, ca_bundle: bytes) -> list[Object]:
        """Return the entries for objects that have, or had before an update, a queue label.

        Objects of built-in kinds, most of which are not Sluice's, are selected by label: for each entry with a match
        condition the API server converts the whole object to CEL values, and again after each mutation, also if nothing
        of the object concerns Sluice. New Jobs, which are created in thousands, are matched by selectors alone. Custom
        resources have one entry each, because the API server checks every entry for every write in the cluster.
        """
        if kind.is_custom:
            misspelled = f"(oldObject == null && {has_queue_like_label('object', kind)})"
            queued = "" if kind.is_always_queued else f"{_has_or_had_a_queue_label(kind)} || {misspelled}"
            return [self._webhook(kind, "mutate", ca_bundle, self._deciding(kind, queued))]
        keys = kind.conventions.queue_labels
        # An object with several queue labels matches one entry only, and is sent once.
        selectors = [
            [{"key": key, "operator": "Exists"}, *({"key": each, "operator": "DoesNotExist"} for each in keys[:number])]
            for number, key in enumerate(keys)
        ]
        name, conditions = ("new", []) if is_job(kind) else ("labelled", self._deciding(kind))
        operations = ["CREATE"] if is_job(kind) else ["CREATE", "UPDATE"]
        webhooks = [
            self._webhook(
                kind,
                f"{name}-{number}",
                ca_bundle,
                conditions,
                operations=operations,
                objects={"matchExpressions": selector},
            )
            for number, selector in enumerate(selectors, 1)
        ]
        # The webhook warns of a misspelled queue label: the user believes that the object is queued.
        created = [is_created_by_user(self.kinds)] if kind.ends_by_deletion else []
        warned = self._webhook(
            kind,
            "misspelled",
            ca_bundle,
            [*created, has_queue_like_label("object", kind)],
            operations=["CREATE"],
            objects=without_label(kind),
        )
        webhooks.append({**warned, "failurePolicy": "Ignore"})
        changed = self._deciding(kind, _has_or_had_a_queue_label(kind))
        if is_job(kind):
            webhooks.append(self._webhook(kind, "mutate", ca_bundle, changed, operations=["UPDATE"]))
        elif kind.more_labels:  # selectors see only the labels of the object itself
            webhooks.append(self._webhook(kind, "template", ca_bundle, changed, objects=without_label(kind)))
        return webhooks

    def _deciding(self, kind: Kind, *conditions: str) -> list[str]:
        """Return these match conditions, and those that select requests which the webhook can decide on."""
        # Updates of pods are not sent: an ungated pod cannot be gated again, and there are too many updates.
        if kind.ends_by_deletion:
            return [is_created_by_user(self.kinds), *conditions]
        # Objects in deletion start no pods any more, and their finalizers must be removable while Sluice is down.
        return [is_not_updated_by(self.scope.own_usernames), *conditions, ALIVE, touches_gated_fields(kind)]

    def _webhook(
        self,
        kind: Kind,
        verb: str,
        ca_bundle: bytes,
        conditions: Sequence[str],
        *,
        operations: Sequence[str] = ("CREATE", "UPDATE"),
        objects: Object | None = None,
    ) -> Object:
        managed = verb == "managed"
        if kind.ends_by_deletion:
            operations = ["CREATE"]
        # Labels and annotations can be written through the status subresource; its other writes do not match.
        through_status = [f"{kind.plural}/status"] if "UPDATE" in operations else []
        return {
            "name": f"{kind.plural}.{kind.group}.{verb}.sluice.dev"
            if kind.is_custom
            else f"{kind.plural}.{verb}.sluice.dev",
            "admissionReviewVersions": ["v1"],
            "clientConfig": self._client_config("/managed" if managed else "/mutate", ca_bundle),
            "failurePolicy": "Fail",
            **({"matchConditions": [condition("queued", *conditions)]} if conditions else {}),
            "matchPolicy": "Equivalent",
            "namespaceSelector": self.scope.managed_namespaces() if managed else self.scope.namespaces(),
            "objectSelector": objects or {},
            "rules": [
                {
                    "apiGroups": [kind.group],
                    "apiVersions": list(kind.versions),
                    "operations": list(operations),
                    "resources": [kind.plural, *through_status],
                    "scope": "Namespaced",
                }
            ],
            "sideEffects": "None",
            # Webhooks called later may change the object after its review, or unsuspend it.
            "reinvocationPolicy": "IfNeeded",
            "timeoutSeconds": 5,
        }

    def _client_config(self, path: str, ca_bundle: bytes) -> Object:
        bundle = base64.b64encode(ca_bundle).decode()
        if isinstance(self.endpoint, str):
            return {"caBundle": bundle, "url": f"{self.endpoint.rstrip('/')}{path}"}
        service = {"namespace": self.endpoint.namespace, "name": self.endpoint.name, "port": self.endpoint.port}
        return {"caBundle": bundle, "service": {**service, "path": path}}


def _ruled(kind: Kind, rules: Iterable[QueueRule]) -> list[str]:
    """Return match conditions for new objects without a queue label that a rule matches; empty if no rule can."""
    matches = " || ".join(
        " && ".join(
            [
                *([f"request.namespace in {_quoted(list(rule.namespaces))}"] if rule.namespaces else []),
                *(f"{label('object', key)} == {_quoted(value)}" for key, value in rule.labels.items()),
                *([] if rule.queue else [has_value("object", rule.places(kind))]),
            ]
        )
        or "true"
        for rule in rules
        if rule.is_for(kind) and (rule.queue or rule.places(kind))
    )
    return [unlabelled(kind), matches] if matches else []


def _quoted(value: object) -> str:
    return orjson.dumps(value).decode()


def _has_or_had_a_queue_label(kind: Kind) -> str:
    labels = [f"({variable} != null && {has_queue_label(variable, kind)})" for variable in ("object", "oldObject")]
    return " || ".join(labels)
