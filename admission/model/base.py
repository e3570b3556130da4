"""Base of the models of queue objects: strict pydantic models in Kubernetes' spelling, metadata and label selectors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.alias_generators import to_camel

from admission.model import names
from admission.model.durations import parse_duration
from admission.model.errors import InvalidQuantity
from admission.model.labels import Operator, requirement_holds
from admission.model.quantity import UNLIMITED, parse_quantity


class Model(BaseModel):
    """Base model: frozen, and strict about unknown fields, which are most often misspelt ones."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,  # they become the descriptions in OpenAPI, which `kubectl explain` shows
    )


class FieldFaultsError(ValueError):
    """Faults found by cross-field validation: (path relative to the validated model, message) of each."""

    def __init__(self, causes: list[tuple[str, str]]) -> None:
        self.causes = causes
        super().__init__("; ".join(f"{path}: {message}" for path, message in causes))


def _dns_subdomain(text: str) -> str:
    if not names.is_dns_subdomain(text):
        raise ValueError(f'"{text}" is no name: use lower-case letters, digits, "-" and ".", at most 253 characters')
    return text


def _dns_label(text: str) -> str:
    if not names.is_dns_label(text):
        raise ValueError(f'"{text}" is no namespace: use lower-case letters, digits and "-", at most 63 characters')
    return text


def _qualified_name(text: str) -> str:
    if not names.is_qualified_name(text):
        raise ValueError(f'"{text}" is not a qualified name such as "cpu" or "example.com/gpu"')
    return text


def _label_value(text: str) -> str:
    if not names.is_label_value(text):
        raise ValueError(f'"{text}" is no label value: use letters, digits, "-", "_" and ".", at most 63 characters')
    return text


def _quantity(value: object) -> str:
    if not isinstance(value, str | int | float):
        raise ValueError("must be a quantity such as 500m or 10Gi")  # noqa: TRY004  pydantic reports ValueErrors only
    try:
        number = parse_quantity(value)
    except InvalidQuantity as error:
        raise ValueError(error.causes[0][1]) from error
    if number < 0:
        raise ValueError(f"must not be negative, but is {value}")
    if number > UNLIMITED:
        raise ValueError(f"{value} is more than can be counted; the most is {UNLIMITED}")
    return value if isinstance(value, str) else repr(value)


def _int32(value: int) -> int:
    if not -(2**31) <= value < 2**31:
        raise ValueError(f"must be from {-(2**31)} to {2**31 - 1}")
    return value


def _positive(text: str) -> str:
    if parse_duration(text) <= 0:
        raise ValueError(f'must be more than 0, but is "{text}"')
    return text


def _text(pattern: str, longest: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern, "maxLength": longest})


_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_PART = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_QUALIFIED = rf"({_SUBDOMAIN}/)?{_PART}"

Name = Annotated[str, AfterValidator(_dns_subdomain), _text(f"^{_SUBDOMAIN}$", 253)]
OptionalName = Annotated[
    str, AfterValidator(lambda text: text and _dns_subdomain(text)), _text(f"^({_SUBDOMAIN})?$", 253)
]
Namespace = Annotated[
    str, AfterValidator(lambda text: text and _dns_label(text)), _text(r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", 63)
]
QualifiedName = Annotated[str, AfterValidator(_qualified_name), _text(f"^{_QUALIFIED}$", 317)]
OptionalQualifiedName = Annotated[
    str, AfterValidator(lambda text: text and _qualified_name(text)), _text(f"^({_QUALIFIED})?$", 317)
]
LabelValue = Annotated[str, AfterValidator(_label_value), _text(f"^({_PART})?$", 63)]
Int32 = Annotated[
    int,
    Field(strict=True),
    AfterValidator(_int32),
    WithJsonSchema({"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}),
]
Labels = Mapping[QualifiedName, LabelValue]
Quantity = Annotated[
    str,
    BeforeValidator(_quantity),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}),
]
"""A non-negative quantity, kept as the text that was written."""
PositiveDuration = Annotated[
    str,
    Field(strict=True),
    AfterValidator(_positive),
    WithJsonSchema({"type": "string", "pattern": r"^(\d+(\.\d+)?(ms|s|m|h|d))+$", "maxLength": 64}),
]
"""A duration of more than 0, kept as the text that was written."""

_SERVER_SIDE = frozenset(
    {"managedFields", "selfLink", "ownerReferences", "deletionGracePeriodSeconds", "generateName"}
)  # fields in the output of `kubectl get -o yaml` that are accepted and ignored


class ObjectMeta(Model):
    """Metadata of a queue object: the fields of Kubernetes' ObjectMeta that apply to it."""

    name: Name
    """The name, unique among the objects of its kind (in its namespace). It cannot be changed."""
    namespace: Namespace = ""
    """The namespace, for a kind that has one. It cannot be changed."""
    labels: Labels = Field(default_factory=dict)
    """Labels, by which objects can be selected."""
    annotations: Mapping[QualifiedName, str] = Field(default_factory=dict)
    """Annotations. Sluice ignores them, except `sluice.dev/change-reason`: why the last change was made."""
    uid: str = ""
    """Unique identifier of the object, also among deleted ones; set by Sluice."""
    generation: int = 0
    """Number of changes of the object, not counting its metadata; set by Sluice."""
    resource_version: str = ""
    """The version of the object. In a write: fail if the object has changed since this version."""
    creation_timestamp: datetime | None = None
    """When the object was created; set by Sluice."""
    deletion_timestamp: datetime | None = None
    """Not used: queue objects are deleted immediately."""
    finalizers: tuple[str, ...] = ()
    """Ignored: queue objects are deleted immediately."""
    managed_fields: tuple[Mapping[str, Any], ...] = ()
    """The fields set by each field manager; maintained by the API, and ignored in a manifest."""

    @model_validator(mode="before")
    @classmethod
    def _drop_server_side(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: item for key, item in value.items() if key not in _SERVER_SIDE}
        return value


class SelectorRequirement(Model):
    """One `matchExpressions` entry of a label selector."""

    key: QualifiedName
    """The key of the label."""
    operator: Operator
    """The relation between the label's value and `values`."""
    values: tuple[LabelValue, ...] = ()
    """The values, with In and NotIn; empty with Exists and DoesNotExist."""

    @model_validator(mode="after")
    def _values_fit_the_operator(self) -> Self:
        if self.operator in {"In", "NotIn"} and not self.values:
            raise FieldFaultsError([("values", f"must not be empty with operator {self.operator}")])
        if self.operator in {"Exists", "DoesNotExist"} and self.values:
            raise FieldFaultsError([("values", f"must be empty with operator {self.operator}")])
        return self

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets the requirement."""
        return requirement_holds(self.key, self.operator, self.values, labels)


class LabelSelector(Model):
    """A metav1.LabelSelector; the empty one matches everything."""

    match_labels: Labels = Field(default_factory=dict)
    """Labels that an object must have, with these values."""
    match_expressions: tuple[SelectorRequirement, ...] = ()
    """Further requirements, all of which must be met."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        # Comparing dict views is fast: a start calls this for every workload.
        return self.match_labels.items() <= labels.items() and all(
            requirement.matches(labels) for requirement in self.match_expressions
        )
