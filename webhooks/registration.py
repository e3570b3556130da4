"""How the API server learns of the webhook: a configuration, written by Sluice itself (`webhooks.standing`).

Only objects with a queue label (at their creation also with one that is misspelled) are sent, so that an outage of
Sluice stops nobody else; those are refused meanwhile (failurePolicy Fail), because a Job that slipped through would run
beside all quotas. Each creation is sent once, and an update only if it touches what the webhook looks at. In managed
namespaces another entry is for Jobs without the label.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import orjson

from admission.kinds.deployment import DeploymentKind
from webhooks.expressions import (
    ALIVE,
    condition,
    decisive,
    label,
    made_by_users,
    not_by,
    shows_odd_queue_label,
    shows_queue_label,
    there_is,
)
from webhooks.policies import is_job, unlabelled, without_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.kinds.base import Kind, Object
    from admission.kinds.rules import QueueRule
    from webhooks.scope import Scope


@dataclass(frozen=True, slots=True)
class ServiceReference:
    """The Service in front of the webhook, for a Sluice that runs inside of the cluster."""

    namespace: str
    name: str
    port: int = 443

    def __str__(self) -> str:
        return f"the Service {self.namespace}/{self.name}, port {self.port}"


Endpoint: TypeAlias = str | ServiceReference
"""Where the API server finds the webhook: a Service, or a URL such as `https://192.0.2.1:9443`."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What decides the content of the configuration."""

    kinds: tuple[Kind, ...]
    endpoint: Endpoint
    scope: Scope

    def configuration(self, ca_bundle: bytes) -> Object:
        """The MutatingWebhookConfiguration. It is the one that refuses, too: a second call would cost as much again."""
        # Entries for each kind: a kind whose objects fail to be matched must not stop the others.
        webhooks = [webhook for kind in self.kinds for webhook in self._labelled(kind, ca_bundle)]
        # After the others: what one gives a queue label to need not be sent to them as well.
        # Of a Deployment the pods are given one, each by itself.
        unlabelled_kinds = [
            kind for kind in self.kinds if not (kind.is_always_queued or isinstance(kind, DeploymentKind))
        ]
        webhooks += [
            self._webhook(
                kind,
                "ruled",
                ca_bundle,
                [made_by_users(self.kinds) if kind.ends_by_deletion else "", *conditions],
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
            ]
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "sluice", "labels": {"app.kubernetes.io/name": "sluice"}},
            "webhooks": webhooks,
        }

    def _labelled(self, kind: Kind, ca_bundle: bytes) -> list[Object]:
        """For what has a queue label, or had one.

        New Jobs, which come in thousands, are found by the label alone: an API server makes CEL values of the whole
        object for each entry with a match condition, and once more when anything has mutated the object. Other kinds
        have one entry each, because each of them is looked at for whatever is written in the cluster.
        """
        changed = self._deciding(kind, _has_or_had_a_queue_label(kind))
        if not is_job(kind):
            return [self._webhook(kind, "mutate", ca_bundle, changed)]
        keys = kind.conventions.queue_labels
        # An object with several of them is sent once.
        selectors = [
            [{"key": key, "operator": "Exists"}, *({"key": each, "operator": "DoesNotExist"} for each in keys[:number])]
            for number, key in enumerate(keys)
        ]
        return [
            *(
                self._webhook(
                    kind, f"new-{number}", ca_bundle, [], operations=["CREATE"], objects={"matchExpressions": selector}
                )
                for number, selector in enumerate(selectors, 1)
            ),
            # A Job that its user thinks is queued gets a warning.
            self._webhook(
                kind,
                "misspelled",
                ca_bundle,
                [shows_odd_queue_label("object", kind)],
                operations=["CREATE"],
                objects=without_label(kind),
            ),
            self._webhook(kind, "mutate", ca_bundle, changed, operations=["UPDATE"]),
        ]

    def _deciding(self, kind: Kind, *conditions: str) -> list[str]:
        """These, and that an update touches what the webhook looks at."""
        # A pod that was ungated is not gated again: its changes are not sent, there would be too many of them.
        if kind.ends_by_deletion:
            return [made_by_users(self.kinds), *conditions]
        # What is being deleted starts nothing any more, and has to be able to go while Sluice is down.
        return [not_by(self.scope.own_usernames), *conditions, ALIVE, decisive(kind)]

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
        # Labels and annotations are writable through the status; other writes of it are not sent.
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
            # Others that come later may change what was judged, or start what was gated.
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
    """The conditions for what is created without a queue label, and that a rule is for; empty: none is."""
    matches = " || ".join(
        " && ".join(
            [
                *([f"request.namespace in {_quoted(list(rule.namespaces))}"] if rule.namespaces else []),
                *(f"{label('object', key)} == {_quoted(value)}" for key, value in rule.labels.items()),
                *([] if rule.queue else [there_is("object", rule.places(kind))]),
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
    if kind.is_always_queued:
        return ""
    labels = [f"({variable} != null && {shows_queue_label(variable, kind)})" for variable in ("object", "oldObject")]
    # A Job that its user thinks is queued gets a warning.
    return " || ".join([*labels, f"(oldObject == null && {shows_odd_queue_label('object', kind)})"])
