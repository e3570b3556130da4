"""Drains: nodes and flavors on which nothing starts any more, so that they can be maintained. Kueue has none."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self, TypeAlias

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from admission.model.base import FieldFaultsError, Model, Name
from admission.model.workload import LOCAL


def seconds(text: str) -> float:
    """Return the Unix time (s) of an instant, such as `2026-11-30T18:00:00Z`. Raises ValueError."""
    expected = f'"{text}" is no instant; write it as 2026-11-30T18:00:00Z'
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(expected) from None
    if at.tzinfo is None:
        raise ValueError(f"{expected}, with a zone")
    return at.timestamp()


def _instant(text: str) -> str:
    seconds(text)
    return text


Instant: TypeAlias = Annotated[
    str, Field(max_length=40), AfterValidator(_instant), WithJsonSchema({"type": "string", "format": "date-time"})
]


class DrainSpec(Model):
    """What is drained, and when."""

    nodes: Annotated[tuple[Name, ...], Field(max_length=256)] = ()
    """Names of nodes."""
    cluster: Name = LOCAL
    """Name of the cluster that these nodes are in."""
    flavors: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    """Names of ResourceFlavors, with all of their nodes."""
    start_time: Instant | None = None
    """When the maintenance begins: until then workloads start whose time limit ends before; not given: nothing starts
    any more."""
    deadline: Instant | None = None
    """When workloads are evicted that still run there; not given: they run until they end."""
    reason: Annotated[str, Field(max_length=300)] = ""
    """Why; users are told."""

    @model_validator(mode="after")
    def _says_what_and_when(self) -> Self:
        if not self.nodes and not self.flavors:
            raise FieldFaultsError([("nodes", "give nodes, flavors or both")])
        start, end = self.starts_at, self.ends_at
        if start is not None and end is not None and end < start:
            raise FieldFaultsError([("deadline", f"{self.deadline} is before the startTime {self.start_time}")])
        return self

    @property
    def starts_at(self) -> float | None:
        """`start_time` as Unix time (s)."""
        return None if self.start_time is None else seconds(self.start_time)

    @property
    def ends_at(self) -> float | None:
        """`deadline` as Unix time (s)."""
        return None if self.deadline is None else seconds(self.deadline)
