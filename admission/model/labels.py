"""Requirements of label selectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

Operator: TypeAlias = Literal["In", "NotIn", "Exists", "DoesNotExist"]


def requirement_holds(key: str, operator: Operator, values: Container[str | None], labels: Mapping[str, str]) -> bool:
    """Whether labels meet one requirement. A missing label never matches In, and always matches NotIn."""
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
