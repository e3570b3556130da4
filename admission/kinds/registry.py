"""The registry of kinds: those that are on, by API group and kind, and the version in which each is served."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from admission.kinds.declared import DeclaredKind
from admission.kinds.grouped import GroupedKind
from admission.kinds.mcad import LEGACY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from admission.kinds.base import Kind
    from admission.kinds.group_sizes import GroupSizeKind
    from admission.model.workload import Workload


def api_root(group: str, version: str) -> str:
    """The path of an API: the core group, which has no name, is served at another one than all others."""
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def verbs(kind: Kind) -> tuple[str, ...]:
    """The rights that Sluice needs to objects of a kind, beside those that it is installed with: it may list pods."""
    if isinstance(kind, GroupedKind):
        return ("list", "watch")
    return ("get", "watch", "patch", "delete") if kind.ends_by_deletion else ("get", "list", "watch", "patch")


class Right(NamedTuple):
    """Verbs for resources of an API group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]


def holds_items(kind: Kind) -> bool:
    """Whether there may be objects of the kind that hold others, for Sluice to make: `mcad`."""
    return isinstance(kind, DeclaredKind) and kind.form.gate is not None and LEGACY in kind.versions


def rights_beside(kinds: Kinds) -> Iterator[Right]:
    """What Sluice needs for its kinds beside the `verbs` for their own objects, and what it is installed with."""
    for size in kinds.sizes.values():
        yield Right(size.group, (size.plural,), ("list", "watch"))
    holders = [kind for kind in kinds if holds_items(kind)]
    for holder in holders:
        yield Right(holder.group, (f"{holder.plural}/status",), ("patch",))
    if holders:
        yield Right("", ("pods",), ("get", "watch", "create", "delete"))
        yield Right("", ("services", "configmaps"), ("get", "create", "delete"))
        yield Right("batch", ("jobs",), ("create", "delete"))


class Kinds:
    """The kinds that are on. Group and kind identify one: two groups may have kinds of the same name.

    Which version of a custom resource the API server serves is only known at run time: `serve` notes it.
    """

    def __init__(
        self,
        kinds: Iterable[Kind],
        composed: Iterable[Kind] = (),
        sizes: Iterable[GroupSizeKind] = (),
        labelled: Iterable[Kind] = (),
    ) -> None:
        """`composed` are those of which the API server has no objects: they are put together of others.

        `sizes` are read beside all these, and neither gated nor queued: their objects tell of the groups of pods.
        `labelled` are not even read: the webhook copies labels in their objects, and that is all.
        """
        self._kinds = {(kind.group, kind.kind): kind for kind in kinds}
        self._composed = {(kind.group, kind.kind): kind for kind in composed}
        self.sizes = {(kind.group, kind.kind): kind for kind in sizes}
        """By API group and kind."""
        self.gated = (*self._kinds.values(), *labelled)
        """The kinds that the gate looks at."""
        everything = (*self._kinds.items(), *self._composed.items(), *self.sizes.items())
        self._versions = {key: kind.versions[0] for key, kind in everything}
        self._roots = {key: api_root(key[0], version) for key, version in self._versions.items()}
        self._served: set[tuple[str, str]] = set()

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())

    def __len__(self) -> int:
        return len(self._kinds)

    def get(self, group: str, kind: str) -> Kind | None:
        """The kind, be it composed; None if it is not on."""
        return self._kinds.get((group, kind)) or self._composed.get((group, kind))

    def is_composed(self, workload: Workload) -> bool:
        """Whether a workload's object is put together of others."""
        return (workload.group, workload.kind) in self._composed

    def of(self, workload: Workload) -> Kind | None:
        """The kind of a workload's object; None if it is not on."""
        key = workload.group, workload.kind
        return self._kinds.get(key) or self._composed.get(key)

    def serve(self, kind: Kind, version: str) -> None:
        """The API server serves the kind in this version."""
        self._versions[kind.group, kind.kind] = version
        self._roots[kind.group, kind.kind] = api_root(kind.group, version)
        self._served.add((kind.group, kind.kind))

    def withdraw(self, kind: Kind) -> None:
        """Note that the API server does not serve the kind."""
        self._served.discard((kind.group, kind.kind))

    def is_served(self, group: str, kind: str) -> bool:
        """Whether the API server is known to serve a kind of custom resource."""
        return (group, kind) in self._served

    def api_version(self, kind: Kind) -> str:
        """`GROUP/VERSION` in which the kind is read and written: the version served, else the one preferred.

        Of the core group it is the version alone.
        """
        version = self._versions[kind.group, kind.kind]
        return f"{kind.group}/{version}" if kind.group else version

    def path(self, kind: Kind, namespace: str = "", name: str = "") -> str:
        """The API path of all objects of the kind, or of one."""
        base = self._roots[kind.group, kind.kind]
        return f"{base}/namespaces/{namespace}/{kind.plural}/{name}" if name else f"{base}/{kind.plural}"
