"""Descriptor of a kind of queue object: its columns, status, selectable fields, warnings and extra rights.

Name, plural, short names, scope and references are on the model (`admission.model.queues`), because the store and the
command line need them, too. Routes, discovery, OpenAPI, tables, selectors, watches, completion and the client are
derived from both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from admission.api.kinds.object_schemas import QueueObjectStatus
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from admission.api.http.responses import Document
    from admission.apimachinery.tables import Column
    from admission.model.base import Model
    from admission.model.queues import Cluster, QueueObject
    from admission.store.store import Store


Namespaces: TypeAlias = "Mapping[str, Mapping[str, str]]"
"""Labels by namespace of the cluster; empty: they are not known."""

ReceiverFault: TypeAlias = "Callable[[str, str], str]"
"""Returns, for a receiver's name and a namespace, why notifications are not sent (a message); empty: they are."""


def no_receiver_fault(receiver: str, namespace: str) -> str:
    """Report no fault, for processes without receivers."""
    del receiver, namespace
    return ""


ClusterCheck: TypeAlias = "Callable[[Cluster], Awaitable[list[str]]]"
"""Returns what keeps a cluster from joining, as messages, after a connection to it and questions for rights."""


async def no_cluster_check(cluster: Cluster) -> list[str]:
    """Find nothing, for processes that no cluster can join."""
    del cluster
    return []


@dataclass(frozen=True, slots=True)
class WarningContext:
    """Information beside the database that warnings are based on."""

    namespaces: Namespaces
    receiver_fault: ReceiverFault
    check_cluster: ClusterCheck = no_cluster_check


@dataclass(frozen=True, slots=True)
class Right:
    """A right in RBAC: a verb on a resource of the group `sluice.dev`."""

    verb: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    """Empty: all namespaces."""
    name: str = ""
    """Empty: all objects."""
    cluster: str = LOCAL
    """The cluster whose RBAC has to grant it, beside that of `local`."""


@dataclass(frozen=True, slots=True)
class Status:
    """How the status of a kind's objects is computed.

    It may depend on workloads, so watches compute it again after any write. It is computed in two steps because few of
    many objects change between two computations: only objects whose inputs have changed are rendered.
    """

    inputs: Callable[[Store, Sequence[Any]], Awaitable[Iterable[Any]]]
    """Loads the inputs of each object's status, in the order of the objects, in a fixed number of queries."""
    render: Callable[[Any, Any], Document]
    """Returns the status of an object with its inputs; equal inputs for the same object give an equal status."""


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A kind of queue object. Its functions receive objects of `model` only."""

    model: type[QueueObject]
    columns: tuple[Column, ...] = ()
    """Columns of tables between Name and Age."""
    selectable_fields: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)
    """Fields for field selectors beside name and namespace: getter of the value by path (`spec.cohortName`)."""
    status_schema: type[Model] = QueueObjectStatus
    """Schema of `status` in OpenAPI."""
    status: Status | None = None
    """None: the kind has no status."""
    warnings: Callable[[Store, Any, WarningContext], Awaitable[list[str]]] | None = None
    """Warnings (messages) for the author of a valid object that does not work as written, or not yet."""
    deletion_warnings: Callable[[Store, Sequence[Any]], Awaitable[list[str]]] | None = None
    """Warnings (messages) for the user who deletes these objects."""
    rights: Callable[[Any], Sequence[Right]] | None = None
    """Rights that the author of an object needs beside the right to write it, by the content of the written object."""
