"""Registry of the enabled kinds by API group and kind, with the version in which the API server serves each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from admission.kinds.declared import DeclaredKind
from admission.kinds.mcad import LEGACY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from admission.kinds.base import Kind
    from admission.kinds.group_sizes import GroupSizeKind
    from admission.model.workload import Workload


def api_root(group: str, version: str) -> str:
    """Return the path of an API: `/apis/batch/v1`; the core group has no name, and the path `/api/v1`."""
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def verbs(kind: Kind) -> tuple[str, ...]:
    """Return the verbs that Sluice needs for objects of a kind, in addition to its basic role, which may list pods."""
    if kind.labelling is not None:
        return ("list",)  # for those with a queue label that are not queued
    if kind.grouping is not None:
        return ("list", "watch")
    return ("get", "watch", "patch", "delete") if kind.ends_by_deletion else ("get", "list", "watch", "patch")


class ApiRight(NamedTuple):
    """Verbs for resources of an API group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]


def holds_items(kind: Kind) -> bool:
    """Whether objects of the kind may contain other objects that Sluice creates (AppWrapper, see `mcad`)."""
    return isinstance(kind, DeclaredKind) and kind.form.gate is not None and LEGACY in kind.versions


def rights_beside(kinds: Kinds) -> Iterator[ApiRight]:
    """Return the rights that the enabled kinds need besides the `verbs` for their own objects and the basic role."""
    for size in kinds.sizes.values():
        yield ApiRight(size.group, (size.plural,), ("list", "watch"))
    holders = [kind for kind in kinds if holds_items(kind)]
    for holder in holders:
        yield ApiRight(holder.group, (f"{holder.plural}/status",), ("patch",))
    if holders:
        yield ApiRight("", ("pods",), ("get", "watch", "create", "delete"))
        yield ApiRight("", ("services", "configmaps"), ("get", "create", "delete"))
        yield ApiRight("batch", ("jobs",), ("create", "delete"))


class Kinds:
    """The enabled kinds, by API group and kind: two groups may have kinds of the same name.

    The version in which the API server serves a custom resource is only known at run time: `serve` stores it.
    """

    def __init__(
        self,
        kinds: Iterable[Kind],
        composed: Iterable[Kind] = (),
        sizes: Iterable[GroupSizeKind] = (),
        labelled: Iterable[Kind] = (),
        off: Iterable[Kind] = (),
    ) -> None:
        """`composed`: kinds without objects in the API server, whose objects are assembled from others.

        `sizes`: kinds whose objects give the size of pod groups; they are watched, but neither gated nor queued.
        `labelled`: kinds that are not watched; the webhook only copies labels inside their objects. `off`: see `off`.
        """
        self._kinds = {(kind.group, kind.kind): kind for kind in kinds}
        self._composed = {(kind.group, kind.kind): kind for kind in composed}
        self.sizes = {(kind.group, kind.kind): kind for kind in sizes}
        """By API group and kind."""
        self.gated = (*self._kinds.values(), *labelled)
        """The kinds that the webhook handles."""
        self.off = tuple(off)
        """The kinds that Sluice knows, but does not queue here: whoever labels such an object is told so."""
        everything = (*self._kinds.items(), *self._composed.items(), *self.sizes.items())
        self._versions = {key: kind.versions[0] for key, kind in everything}
        self._roots = {key: api_root(key[0], version) for key, version in self._versions.items()}
        self._served: set[tuple[str, str]] = set()

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())

    def __len__(self) -> int:
        return len(self._kinds)

    def get(self, group: str, kind: str) -> Kind | None:
        """Return a kind, composed ones included; None: it is not enabled."""
        return self._kinds.get((group, kind)) or self._composed.get((group, kind))

    def is_composed(self, workload: Workload) -> bool:
        """Whether a workload's object is assembled from others."""
        return (workload.group, workload.kind) in self._composed

    def of(self, workload: Workload) -> Kind | None:
        """Return the kind of a workload's object; None: it is not enabled."""
        key = workload.group, workload.kind
        return self._kinds.get(key) or self._composed.get(key)

    def serve(self, kind: Kind, version: str) -> None:
        """Store the version in which the API server serves the kind."""
        self._versions[kind.group, kind.kind] = version
        self._roots[kind.group, kind.kind] = api_root(kind.group, version)
        self._served.add((kind.group, kind.kind))

    def withdraw(self, kind: Kind) -> None:
        """Note that the API server does not serve the kind."""
        self._served.discard((kind.group, kind.kind))

    def is_served(self, group: str, kind: str) -> bool:
        """Whether the API server is known to serve a custom resource of this group and kind."""
        return (group, kind) in self._served

    def api_version(self, kind: Kind) -> str:
        """Return the `GROUP/VERSION` in which the kind is read and written: the served version, else the preferred one.

        For the core group it is the version alone.
        """
        version = self._versions[kind.group, kind.kind]
        return f"{kind.group}/{version}" if kind.group else version

    def path(self, kind: Kind, namespace: str = "", name: str = "") -> str:
        """Return the API path of all objects of the kind, or of one object."""
        base = self._roots[kind.group, kind.kind]
        return f"{base}/namespaces/{namespace}/{kind.plural}/{name}" if name else f"{base}/{kind.plural}"
