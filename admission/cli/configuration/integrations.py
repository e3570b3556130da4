"""The setting `integrations`: the kinds that Sluice queues, as in Kueue's configuration, and user-defined kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError, model_validator

from admission.cli.errors import InvalidSettings
from admission.kinds import (
    BY_LABEL,
    GROUPED,
    JOB_SET,
    LABELLED,
    TRAIN_JOB,
    Conventions,
    Kinds,
    all_kinds,
    enabled,
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
    """How pods that match a rule form pod groups."""

    name_from: tuple[QualifiedName, ...] = Field(
        min_length=1, description="Label keys of a pod: pods with equal values for all of them form one group."
    )
    pod_set_from: OptionalQualifiedName = Field("", description="Label key of a pod whose value names its pod set.")


class QueueRuleSettings(Model):
    """One rule that assigns a LocalQueue to objects without a queue label; an omitted criterion matches everything."""

    queue: Name = Field(description="LocalQueue in the namespace of the object.")
    namespaces: tuple[Namespace, ...] = Field((), description="Namespaces that the rule applies to; empty: all.")
    kinds: tuple[str, ...] = Field(
        (), description="Kinds that the rule applies to, named as in frameworks; empty: all."
    )
    match_labels: Labels = Field({}, description="Labels that the object must have.")
    pod_group: RuledGroupSettings | None = Field(
        None, description="How matching pods form pod groups. Default: the rule forms none."
    )


class IntegrationsSettings(Model):
    """The kinds of objects that Sluice queues, and the labels and fields that name their queue."""

    frameworks: tuple[str, ...] | None = Field(
        None,
        description="Kinds that are queued, if not all of these: " + ", ".join(frameworks_known()) + ".",
    )
    exclude: tuple[str, ...] = Field(
        (),
        description="Kinds that are not queued. pod takes out all kinds that are queued by their pods, as well, and "
        "jobset.x-k8s.io/jobset takes out TrainJobs.",
    )
    kinds: tuple[dict[str, Any], ...] = Field(
        (), description="User-defined kinds: descriptions of other custom resources with a suspend field."
    )

    queue_labels: tuple[QualifiedName, ...] = Field(
        (),
        description="Label keys of other systems that name the LocalQueue of an object that has neither Sluice's nor "
        "Kueue's queue label, in order of precedence.",
    )
    queue_annotations: tuple[QualifiedName, ...] = Field(
        (),
        description="Annotation keys of other systems that name the LocalQueue of an object without a queue label, in "
        "order of precedence.",
    )
    queue_fields: tuple[str, ...] = Field(
        (),
        description="Fields of custom resources that name the LocalQueue of an object without a queue label or queue "
        "annotation, in order of precedence, such as spec.runPolicy.schedulingPolicy.queue.",
    )
    priority_labels: tuple[QualifiedName, ...] = Field(
        (), description="Label keys of other systems that name a WorkloadPriorityClass, in order of precedence."
    )

    group_labels: tuple[str, ...] = Field(
        (),
        description="Labels or annotations of other systems that name the group of a pod without Sluice's or Kueue's "
        f"group label, in order of precedence. Available: {', '.join(FOREIGN)}.",
    )

    rules: tuple[QueueRuleSettings, ...] = Field(
        (),
        description="Rules that assign a LocalQueue to objects created without a queue label; the first matching rule "
        "applies.",
    )

    @model_validator(mode="after")
    def _names_are_known(self) -> IntegrationsSettings:
        try:
            enabled(self.frameworks, self.exclude)
        except InvalidObject as error:
            raise FieldFaultsError(error.causes) from error
        return self

    @model_validator(mode="after")
    def _rules_name_queued_kinds(self) -> IntegrationsSettings:
        queued = self._queued()
        for number, rule in enumerate(self.rules):
            for position, kind in enumerate(rule.kinds):
                if kind in LABELLED:
                    message = f'"{kind}" is queued by its pods, each separately: write pod'
                    raise FieldFaultsError([(f"rules[{number}].kinds[{position}]", message)])
                if kind not in queued:
                    how = "leave it out of exclude" if self.frameworks is None else "add it to frameworks"
                    message = f'"{kind}" is not queued: {how}, or leave it out here; queued are {", ".join(queued)}'
                    raise FieldFaultsError([(f"rules[{number}].kinds[{position}]", message)])
            if rule.pod_group is not None and "pod" not in (rule.kinds or queued):
                message = "is for pods: add pod to frameworks, and to the kinds of this rule if it has any"
                raise FieldFaultsError([(f"rules[{number}].podGroup", message)])
        return self

    @model_validator(mode="after")
    def _keys_are_known_and_unique(self) -> IntegrationsSettings:
        known = Conventions()
        for position, label in enumerate(self.group_labels):
            if label not in FOREIGN:
                message = f'"{label}" is not known to name a group; available are {", ".join(FOREIGN)}'
                raise FieldFaultsError([(f"groupLabels[{position}]", message)])
            if "pod" not in self.enabled:
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
                message = f'"{field}" is not the path of a field; write names separated by dots: spec.runPolicy.queue'
                raise FieldFaultsError([(f"queueFields[{position}]", message)])
        return self

    @model_validator(mode="after")
    def _kinds_are_valid(self) -> IntegrationsSettings:
        try:
            self.registry()
        except InvalidObject as error:
            raise ValueError("; ".join(f"{path}: {message}" for path, message in error.causes)) from error
        return self

    @model_validator(mode="after")
    def _train_jobs_need_job_sets(self) -> IntegrationsSettings:
        if TRAIN_JOB in self.enabled and JOB_SET not in self.enabled:
            message = f"the pods of {TRAIN_JOB} are read from its JobSet: add {JOB_SET}"
            raise FieldFaultsError([("frameworks", message)])
        return self

    @model_validator(mode="after")
    def _grouped_kinds_need_pods(self) -> IntegrationsSettings:
        grouped = [name for name in self.enabled if name in GROUPED or name in LABELLED]
        if grouped and "pod" not in self.enabled:
            raise FieldFaultsError([("frameworks", f"{grouped[0]} is queued by its pods: add pod")])
        return self

    def _queued(self) -> list[str]:
        """Return the names of the kinds that are queued."""
        return [*self.enabled, *(f"{form.get('group')}/{str(form.get('kind')).lower()}" for form in self.kinds)]

    @property
    def enabled(self) -> tuple[str, ...]:
        """The names of the kinds that are queued, user-defined ones excepted."""
        return enabled(self.frameworks, self.exclude)

    @property
    def by_label(self) -> tuple[str, ...]:
        """The kinds of which objects without a queue label are not queued, even in managed namespaces."""
        return BY_LABEL if self.frameworks is None else ()

    def queue_rules(self) -> tuple[QueueRule, ...]:
        """Return the rules in order of precedence: first queue annotations and fields of the object, then `rules`."""
        others = [name for name in self._queued() if name not in self.by_label]
        annotations, fields = self.queue_annotations, self.queue_fields
        of_object = [QueueRule(queue_annotations=annotations, queue_fields=fields)] if annotations or fields else []
        return *of_object, *(
            QueueRule(
                each.queue,
                each.namespaces,
                each.kinds or (tuple(others) if self.by_label else ()),
                dict(each.match_labels),
                group_name_from=each.pod_group.name_from if each.pod_group else (),
                pod_set_from=each.pod_group.pod_set_from if each.pod_group else "",
            )
            for each in self.rules
        )

    def registry(self, **options: Any) -> Kinds:
        """Return the registry of queued kinds; `options` are those of `all_kinds`. Raises InvalidObject."""
        own = [parse_form(document, where=f"kinds[{number}]") for number, document in enumerate(self.kinds)]
        return all_kinds(
            frameworks=self.enabled,
            by_label=self.by_label,
            own=own,
            queue_labels=self.queue_labels,
            priority_labels=self.priority_labels,
            group_labels=self.group_labels,
            **options,
        )


def read_integrations(config: Path) -> IntegrationsSettings:
    """Return the integrations of a configuration file, ignoring all its other settings.

    For commands that need neither database nor policy. Raises InvalidSettings.
    """
    try:
        text = config.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"the configuration file {config} cannot be read: {error}") from error
    return parse_integrations(text, source=str(config))


def parse_integrations(text: str, *, source: str) -> IntegrationsSettings:
    """Return the integrations in the text of a configuration file. Raises InvalidSettings, which names `source`."""
    try:
        documents = parse_documents(text, source=source)
    except InvalidObject as error:
        raise InvalidSettings(f"the configuration file {error}") from error
    found = documents[0].body.get("integrations") if documents else None
    try:
        return IntegrationsSettings.model_validate(found or {}, by_alias=True, by_name=False)
    except ValidationError as error:
        causes = [
            f"{'.'.join(filter(None, ('integrations', path)))} in {source}: {text}" for path, text in faults(error)
        ]
        raise InvalidSettings("; ".join(causes)) from error
