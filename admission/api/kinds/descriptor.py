"""The descriptor of a kind of queue object: all that the API has to know of it beside its model.

Name, plural, short names, scope and references stand on the model (`admission.model.queues`), as store and command line
need them, too. From both follow routes, discovery, OpenAPI, tables, selectors, watches, completion and the client.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from admission.api.kinds.object_schemas import QueueObjectStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.columns import Column
    from admission.model.base import Model
    from admission.model.queues import QueueObject
    from admission.store.store import Store


Namespaces: TypeAlias = "Mapping[str, Mapping[str, str]]"
"""The labels of each namespace of the cluster; empty: they are not known."""

ReceiverFault: TypeAlias = "Callable[[str, str], str]"
"""Of the name of a receiver and a namespace: why nothing is sent, as a sentence; empty: something is."""


def receivers_unknown(receiver: str, namespace: str) -> str:
    """Where nothing is known of receivers."""
    del receiver, namespace
    return ""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known beside the database, where warnings are made."""

    namespaces: Namespaces
    receiver_fault: ReceiverFault


@dataclass(frozen=True, slots=True)
class Right:
    """A right in the cluster's RBAC, on a resource of the group `sluice.dev`."""

    verb: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    """Empty: in all of them."""


@dataclass(frozen=True, slots=True)
class Status:
    """The status of the objects of a kind. It may depend on workloads, so a watch looks again when anything is written.

    It is made in two steps, for of very many objects few have changed since the last look.
    """

    facts: Callable[[Store, Sequence[Any]], Awaitable[Iterable[Any]]]
    """What the status of each object says beside the object itself, in order, in a fixed number of queries."""
    shown: Callable[[Any, Any], Document]
    """The status of an object; equal facts about the same object give an equal one."""


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A kind of queue object. The functions are given objects of `model` only."""

    model: type[QueueObject]
    columns: tuple[Column, ...] = ()
    """Between name and age."""
    selectable: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)
    """What a field selector can name beside name and namespace: path to the value of an object."""
    status_schema: type[Model] = QueueObjectStatus
    """The schema of `status` in OpenAPI."""
    status: Status | None = None
    """None: the kind has none."""
    warnings: Callable[[Store, Any, Known], Awaitable[list[str]]] | None = None
    """Sentences for the author of an object that was accepted and will not work as it is, or not yet."""
    deletion_warnings: Callable[[Store, Sequence[Any]], Awaitable[list[str]]] | None = None
    """Sentences for the one who deletes these objects."""
    rights: Callable[[Any], Sequence[Right]] | None = None
    """What the author of an object needs beside the right to write it, by what it says then."""
