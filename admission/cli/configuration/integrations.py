"""The setting `integrations`: which kinds are queued, as in Kueue's configuration, and users' own kinds."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from admission.kinds import BATCH_JOB, Conventions, Kinds, all_kinds, frameworks_known, parse_form
from admission.model.base import FieldFaultsError, Model, QualifiedName
from admission.model.errors import InvalidObject


class IntegrationsSettings(Model):
    """Which kinds of objects are queued."""

    frameworks: tuple[str, ...] = Field(
        (BATCH_JOB,), description=f"Kinds by group and name: {', '.join(frameworks_known())}."
    )
    kinds: tuple[dict[str, Any], ...] = Field(
        (), description="Descriptions of other custom resources with a suspend field; they are on."
    )

    queue_labels: tuple[QualifiedName, ...] = Field(
        (), description="Labels of other systems that name the queue where Sluice's and Kueue's do not, in this order."
    )
    priority_labels: tuple[QualifiedName, ...] = Field(
        (), description="Labels of other systems that name a WorkloadPriorityClass, in this order."
    )

    @model_validator(mode="after")
    def _each_label_once(self) -> IntegrationsSettings:
        known = Conventions()
        for name, read, given in (
            ("queueLabels", known.queue_labels, self.queue_labels),
            ("priorityLabels", known.priority_labels, self.priority_labels),
        ):
            for position, label in enumerate(given):
                if label in (*read, *given[:position]):
                    raise FieldFaultsError([(f"{name}[{position}]", f'"{label}" is read already: leave it out')])
        return self

    @model_validator(mode="after")
    def _known(self) -> IntegrationsSettings:
        try:
            self.registry()
        except InvalidObject as error:
            raise ValueError("; ".join(f"{path}: {message}" for path, message in error.causes)) from error
        return self

    def registry(self, **options: Any) -> Kinds:
        """The kinds that are on; `options` are those of `all_kinds`. Raises InvalidObject."""
        own = [parse_form(document, where=f"kinds[{number}]") for number, document in enumerate(self.kinds)]
        return all_kinds(
            frameworks=self.frameworks,
            own=own,
            queue_labels=self.queue_labels,
            priority_labels=self.priority_labels,
            **options,
        )
