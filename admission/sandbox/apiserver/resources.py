"""Description of a served resource: names, verbs, subresources, schema and strategy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.schema import SchemaFields
    from admission.sandbox.apiserver.strategy import Strategy

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
STATUS_VERBS = ("get", "patch", "update")


@dataclass(frozen=True, eq=False)
class ServedResource:
    """One resource in one version. `schema` has its fields, `strategy` its validation and defaulting.

    `selectable` are the paths of a definition's selectableFields, `scale_paths` those of the desired and the actual
    number of replicas; a resource with a `view` is another API version of one that is stored.
    """

    group: str
    version: str
    plural: str
    kind: str
    schema: SchemaFields
    strategy: Strategy
    namespaced: bool = True
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[ServedSubresource, ...] = ()
    singular: str = ""
    list_kind: str = ""
    custom: bool = False
    view: VersionConversion | None = None
    selectable: tuple[str, ...] = ()
    printer_columns: tuple[dict[str, Any], ...] = ()
    scale_paths: tuple[str, str] = (".spec.replicas", ".status.replicas")

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def qualified(self) -> str:
        """The GroupResource as messages show it: `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def key(self) -> tuple[str, str]:
        """Key of its storage, `(group, plural)`; all versions share one, and a view has that of the stored version."""
        return self.view.key if self.view else (self.group, self.plural)

    @cached_property
    def listing(self) -> str:
        return self.list_kind or f"{self.kind}List"

    @cached_property
    def type_length(self) -> int:
        """The length of `{"kind":...,"apiVersion":...,` at the start of a serialised object."""
        return len(f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",')

    @cached_property
    def has_status(self) -> bool:
        return any(sub.name == "status" for sub in self.subresources)

    def subresource(self, name: str) -> ServedSubresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)


@dataclass(frozen=True, slots=True)
class ServedSubresource:
    """A subresource as discovery shows it; kind, group and version are empty if they are the parent's."""

    name: str
    verbs: tuple[str, ...]
    kind: str = ""
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class VersionConversion:
    """Conversion of a stored resource to another API version.

    `key` names the storage; `from_storage` and `to_storage` convert whole objects.
    """

    key: tuple[str, str]
    from_storage: Callable[[Object], Object]
    to_storage: Callable[[Object], Object]


STATUS = ServedSubresource("status", STATUS_VERBS)
SCALE = ServedSubresource("scale", STATUS_VERBS, "Scale", "autoscaling", "v1")
