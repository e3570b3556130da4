"""The setting `integrations`: which kinds are queued, as in Kueue's configuration, and users' own kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError, model_validator

from admission.cli.errors import InvalidSettings
from admission.kinds import (
    BATCH_JOB,
    GROUPED,
    JOB_SET,
    LABELLED,
    TRAIN_JOB,
    Conventions,
    Kinds,
    all_kinds,
    frameworks_known,
    parse_form,
)
from admission.kinds.foreign_groups import FOREIGN
from admission.kinds.rules import QueueRule
from admission.model.base import FieldFaultsError, Labels, Model, Name, Namespace, OptionalQualifiedName, QualifiedName
from admission.model.errors import InvalidObject
from admission.model.manifests import faults, parse_documents

if TYPE_CHECKING:
    from pathlib import Path


class RuledGroupSettings(Model):
    """How the pods that a rule is for are put into groups."""

    name_from: tuple[QualifiedName, ...] = Field(
        min_length=1, description="Labels of a pod: pods with the same values are one group."
    )
    pod_set_from: OptionalQualifiedName = Field("", description="The label of a pod that names its pod set.")


class QueueRuleSettings(Model):
    """One rule for objects without a queue label; what is left out is not looked at."""

    queue: Name = Field(description="The LocalQueue, in the namespace of the object.")
    namespaces: tuple[Namespace, ...] = Field((), description="Names of the namespaces that it is for.")
    kinds: tuple[str, ...] = Field((), description="Names of the kinds that it is for, as in frameworks.")
    match_labels: Labels = Field({}, description="Labels that the object must have, with these values.")
    pod_group: RuledGroupSettings | None = Field(None, description="Which groups pods are in; left out: in none.")


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
    queue_annotations: tuple[QualifiedName, ...] = Field(
        (), description="Annotations of other systems that name the queue where no label does, in this order."
    )
    queue_fields: tuple[str, ...] = Field(
        (),
        description="Fields of custom resources that name the queue where no label and no annotation does, in this "
        "order, such as spec.runPolicy.schedulingPolicy.queue.",
    )
    priority_labels: tuple[QualifiedName, ...] = Field(
        (), description="Labels of other systems that name a WorkloadPriorityClass, in this order."
    )

    group_labels: tuple[str, ...] = Field(
        (),
        description="Labels or annotations of other systems that name a pod's group where Sluice's and Kueue's do not, "
        f"in this order: {', '.join(FOREIGN)}.",
    )

    rules: tuple[QueueRuleSettings, ...] = Field(
        (), description="Which LocalQueue what is created without a queue label is for; the first rule that matches."
    )

    @model_validator(mode="after")
    def _rules_for_what_is_on(self) -> IntegrationsSettings:
        on = [*self.frameworks, *(f"{form.get('group')}/{str(form.get('kind')).lower()}" for form in self.kinds)]
        for number, rule in enumerate(self.rules):
            for position, kind in enumerate(rule.kinds):
                if kind in LABELLED:
                    message = f'"{kind}" is queued by its pods, each by itself: write pod'
                    raise FieldFaultsError([(f"rules[{number}].kinds[{position}]", message)])
                if kind not in on:
                    message = f'"{kind}" is not on: add it to frameworks or leave it out; on are {", ".join(on)}'
                    raise FieldFaultsError([(f"rules[{number}].kinds[{position}]", message)])
            if rule.pod_group is not None and "pod" not in (rule.kinds or on):
                message = "is for pods: add pod to frameworks, and to kinds where those are said"
                raise FieldFaultsError([(f"rules[{number}].podGroup", message)])
        return self

    @model_validator(mode="after")
    def _each_label_once(self) -> IntegrationsSettings:
        known = Conventions()
        for position, label in enumerate(self.group_labels):
            if label not in FOREIGN:
                message = f'"{label}" is not known to name a group; there are {", ".join(FOREIGN)}'
                raise FieldFaultsError([(f"groupLabels[{position}]", message)])
            if "pod" not in self.frameworks:
                raise FieldFaultsError([("groupLabels", "groups are made of pods: add pod to frameworks")])
        for name, read, given in (
            ("queueLabels", known.queue_labels, self.queue_labels),
            ("queueAnnotations", (), self.queue_annotations),
            ("queueFields", (), self.queue_fields),
            ("priorityLabels", known.priority_labels, self.priority_labels),
            ("groupLabels", (), self.group_labels),
        ):
            for position, label in enumerate(given):
                if label in (*read, *given[:position]):
                    raise FieldFaultsError([(f"{name}[{position}]", f'"{label}" is read already: leave it out')])
        return self

    @model_validator(mode="after")
    def _fields_are_paths(self) -> IntegrationsSettings:
        for position, field in enumerate(self.queue_fields):
            if not (field.isascii() and "." in field and all(part.isidentifier() for part in field.split("."))):
                message = f'"{field}" is no path of one field; write names with dots: spec.runPolicy.queue'
                raise FieldFaultsError([(f"queueFields[{position}]", message)])
        return self

    @model_validator(mode="after")
    def _known(self) -> IntegrationsSettings:
        try:
            self.registry()
        except InvalidObject as error:
            raise ValueError("; ".join(f"{path}: {message}" for path, message in error.causes)) from error
        return self

    @model_validator(mode="after")
    def _with_what_is_read(self) -> IntegrationsSettings:
        if TRAIN_JOB in self.frameworks and JOB_SET not in self.frameworks:
            message = f"the pods of {TRAIN_JOB} are read from its JobSet: add {JOB_SET}"
            raise FieldFaultsError([("frameworks", message)])
        return self

    @model_validator(mode="after")
    def _with_pods(self) -> IntegrationsSettings:
        grouped = [name for name in self.frameworks if name in GROUPED or name in LABELLED]
        if grouped and "pod" not in self.frameworks:
            raise FieldFaultsError([("frameworks", f"{grouped[0]} is queued by its pods: add pod")])
        return self

    def queue_rules(self) -> tuple[QueueRule, ...]:
        """The rules, for those who apply them; before them what an object says itself, beside labels."""
        annotations, fields = self.queue_annotations, self.queue_fields
        named = [QueueRule(queue_annotations=annotations, queue_fields=fields)] if annotations or fields else []
        return *named, *(
            QueueRule(
                each.queue,
                each.namespaces,
                each.kinds,
                dict(each.match_labels),
                group_name_from=each.pod_group.name_from if each.pod_group else (),
                pod_set_from=each.pod_group.pod_set_from if each.pod_group else "",
            )
            for each in self.rules
        )

    def registry(self, **options: Any) -> Kinds:
        """The kinds that are on; `options` are those of `all_kinds`. Raises InvalidObject."""
        own = [parse_form(document, where=f"kinds[{number}]") for number, document in enumerate(self.kinds)]
        return all_kinds(
            frameworks=self.frameworks,
            own=own,
            queue_labels=self.queue_labels,
            priority_labels=self.priority_labels,
            group_labels=self.group_labels,
            **options,
        )


def read_integrations(config: Path) -> IntegrationsSettings:
    """Those of a configuration file, without all else that it says, for what knows no database and no policy.

    Raises InvalidSettings.
    """
    try:
        documents = parse_documents(config.read_text(), source=str(config))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"the configuration file {config} cannot be read: {error}") from error
    except InvalidObject as error:
        raise InvalidSettings(f"the configuration file {error}") from error
    found = documents[0].body.get("integrations") if documents else None
    try:
        return IntegrationsSettings.model_validate(found or {}, by_alias=True, by_name=False)
    except ValidationError as error:
        causes = [
            f"{'.'.join(filter(None, ('integrations', path)))} in {config}: {text}" for path, text in faults(error)
        ]
        raise InvalidSettings("; ".join(causes)) from error
