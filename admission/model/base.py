"""What all that users write has in common: strict models with Kubernetes' spelling, metadata and selectors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.alias_generators import to_camel

from admission.model import names
from admission.model.errors import InvalidQuantity
from admission.model.labels import Operator, requirement_holds
from admission.model.quantity import UNLIMITED, parse_quantity


class Model(BaseModel):
    """Frozen, and closed: an unknown field is an error, because it is most often a misspelt one."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,  # they are what `kubectl explain` tells
    )


class FieldFaultsError(ValueError):
    """What cross-field checks found: (path relative to the checked model, message) of each fault."""

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
        raise ValueError(f'"{text}" is no qualified name such as "cpu" or "example.com/gpu"')
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
"""A non-negative quantity, as the text that was written."""

_SERVER_SIDE = frozenset(
    {"managedFields", "selfLink", "ownerReferences", "deletionGracePeriodSeconds", "generateName"}
)  # read from `kubectl get -o yaml` output, and of no meaning to Sluice


class ObjectMeta(Model):
    """The part of Kubernetes' metadata that means something for a queue object."""

    name: Name
    """The name, unique among the objects of its kind (in its namespace). It cannot be changed."""
    namespace: Namespace = ""
    """The namespace, for a kind that has one. It cannot be changed."""
    labels: Labels = Field(default_factory=dict)
    """Keys and values to select objects by."""
    annotations: Mapping[QualifiedName, str] = Field(default_factory=dict)
    """Keys and values of no meaning to Sluice, except `sluice.dev/change-reason`: why the last change was made."""
    uid: str = ""
    """Identifies the object among all that ever were; given by Sluice."""
    generation: int = 0
    """How often what the object says beside its metadata has changed; given by Sluice."""
    resource_version: str = ""
    """The version of the object. In a write: the object must not have changed since."""
    creation_timestamp: datetime | None = None
    """When it was created; given by Sluice."""
    deletion_timestamp: datetime | None = None
    """Not used: queue objects are deleted at once."""
    finalizers: tuple[str, ...] = ()
    """Not kept: queue objects are deleted at once."""
    managed_fields: tuple[Mapping[str, Any], ...] = ()
    """Which fields were set by which field manager. Kept by the API; what a manifest says of it is not read."""

    @model_validator(mode="before")
    @classmethod
    def _drop_server_side(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: item for key, item in value.items() if key not in _SERVER_SIDE}
        return value


class SelectorRequirement(Model):
    """One `matchExpressions` entry of a label selector."""

    key: QualifiedName
    """The label that this is about."""
    operator: Operator
    """How the label relates to the values."""
    values: tuple[LabelValue, ...] = ()
    """The values, for In and NotIn."""

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
    """Labels that must be there with these values."""
    match_expressions: tuple[SelectorRequirement, ...] = ()
    """Further requirements, all of which must be met."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        # By two views: it is asked for each workload at a start.
        return self.match_labels.items() <= labels.items() and all(
            requirement.matches(labels) for requirement in self.match_expressions
        )
