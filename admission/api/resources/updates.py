"""Computation of the object to write, from a request body and the existing object. Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from admission.api.errors import ApplyConflict, BadRequest
from admission.api.http.bodies import as_object, check_patched
from admission.api.registry import API_VERSION
from admission.apimachinery.ownership import (
    FieldWriter,
    applied,
    can_be_owned,
    conflict_causes,
    conflict_message,
    conflicts,
    find,
    updated,
    without,
)
from admission.apimachinery.patches import json_patch, merge_patch
from admission.model.errors import InvalidObject
from admission.model.manifests import parse_manifest, to_manifest
from admission.model.queues import Budget, ClusterQueue, LocalQueue, quotas_kept
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.api.http.bodies import Body
    from admission.api.http.request_options import Validation
    from admission.api.http.responses import Document
    from admission.api.registry import Resource
    from admission.apimachinery.ownership import Entry, Path
    from admission.model.queues import QueueObject

_IGNORED_METADATA = ("ownerReferences", "finalizers")
_MANAGER = "unknown"
"""Field manager of requests without fieldManager and User-Agent."""


@dataclass(slots=True)
class ObjectUpdate:
    """One write to one path; its methods return the object that results from each kind of request."""

    resource: Resource
    namespace: str
    name: str
    """Name in the path; empty for a POST, whose object has its name in the body."""
    manager: str
    validation: Validation
    now: str
    """Time of the write, in RFC 3339 format."""
    warnings: list[str] = field(default_factory=list)
    """Warnings for the client; they accumulate while the methods run."""

    def created(self, body: Body) -> QueueObject:
        """Return the object of a POST. Raises BadRequest and InvalidObject."""
        self._check_duplicates(body)
        document = as_object(body.value)
        if isinstance(metadata := document.get("metadata"), dict) and metadata.get("resourceVersion"):
            raise BadRequest("metadata.resourceVersion must not be set on an object that is to be created")
        return self._written(None, self._parsed(document))

    def replaced(self, body: Body) -> QueueObject:
        """Return the object in the body of a PUT, to be passed to `replacing`. Raises BadRequest and InvalidObject."""
        self._check_duplicates(body)
        return self._parsed(as_object(body.value))

    def replacing(self, old: QueueObject, new: QueueObject) -> QueueObject:
        """Return `new` in place of `old`; this manager becomes the owner of the changed fields.

        Warns if that starts a stopped queue, or takes grants from a Budget: the author of a manifest may not know of a
        stop or a grant by an admin.
        """
        was, now = map(_stop_policy, (old, new))
        if was != now == "None":
            text = f"was stopped (spec.stopPolicy: {was}), and admits workloads again after this write"
            self.warnings.append(f"{old.kind} {old.name} {text}; `sluice stop` stops it again")
        if isinstance(old, Budget) and isinstance(new, Budget):
            for grant in (each for each in old.spec.grants if each not in new.spec.grants):
                text = f"loses its grant of {grant.hours} hours of {grant.resource} for the period of {grant.day}"
                self.warnings.append(f"Budget {old.name} {text} ({clean(grant.reason)})")
        return self._written(old, new)

    def merged(self, old: QueueObject, body: Body) -> QueueObject:
        """Return the object after a merge patch. Raises BadRequest and InvalidObject."""
        self._check_duplicates(body)
        return self._patched(old, merge_patch(_whole(old), as_object(body.value)))

    def json_patched(self, old: QueueObject, body: Body) -> QueueObject:
        """Return the object after a JSON patch. Raises PatchFailed, BadRequest and InvalidObject."""
        self._check_duplicates(body)
        result = json_patch(_whole(old), body.value)
        check_patched(result, "the patched object")
        return self._patched(old, result)

    def applied(self, old: QueueObject | None, body: Body, *, force: bool) -> QueueObject:
        """Return the object after a server-side apply. Raises ApplyConflict, BadRequest and InvalidObject."""
        self._check_duplicates(body)
        config = _without_nulls(as_object(body.value))
        if config.get("metadata", {}) and config["metadata"].get("managedFields"):
            raise BadRequest("metadata.managedFields must be nil")
        paths = {path for path, _ in _values(config)}
        writer = self._writer()
        if old is None:
            new = self._parsed(config, strictly=True)
            return _managed(new, [writer.entry("Apply", paths)])
        live = to_manifest(old)
        merged = merge_patch(live, config)
        new = quotas_kept(self._parsed(merged, strictly=True), old)
        after = to_manifest(new)
        entries = _entries(old)
        found = conflicts(entries, paths, writer, differs=lambda path: find(after, path) != find(live, path))
        if found and not force:
            causes = conflict_causes(found)
            raise ApplyConflict(conflict_message(causes), causes=causes)
        entries, dropped = applied(entries, paths, {path for path, _ in found}, writer)
        if dropped:
            for path in dropped:
                merged = without(merged, path)
            new = self._parsed(merged)
        return _managed(new, entries)

    def _patched(self, old: QueueObject, document: Any) -> QueueObject:
        return self._written(old, self._parsed(as_object(document), patch=True))

    def _written(self, old: QueueObject | None, new: QueueObject) -> QueueObject:
        before = {} if old is None else dict(_values(to_manifest(old)))
        entries = [] if old is None else _entries(old)
        after = dict(_values(to_manifest(quotas_kept(new, old))))  # what Sluice has written changes no owner
        return _managed(new, updated(entries, before, after, self._writer()))

    def _writer(self) -> FieldWriter:
        return FieldWriter(self.manager or _MANAGER, API_VERSION, self.now)

    def _check_duplicates(self, body: Body) -> None:
        texts = [f'duplicate field "{path}"' for path in body.duplicates]
        if texts and self.validation == "Strict":
            raise BadRequest(f"strict decoding error: {', '.join(texts)}")
        if self.validation == "Warn":
            self.warnings.extend(texts)

    def _parsed(self, document: Document, *, patch: bool = False, strictly: bool = False) -> QueueObject:
        """Parse a document, whose kind, name and namespace must fit the path.

        `patch`: it is the result of a patch, for the form of errors. `strictly`: unknown fields are errors whatever
        `fieldValidation` says. Raises BadRequest and InvalidObject.
        """
        self._fit(document)
        unknown: list[str] = []
        parsed = parse_manifest(document, unknown=None if strictly else unknown)
        if unknown and self.validation == "Strict":
            text = f"strict decoding error: {', '.join(unknown)}"
            if patch:
                raise InvalidObject([("patch", text)])
            raise BadRequest(
                f'{self.resource.kind} in version "v1" cannot be handled as a {self.resource.kind}: {text}'
            )
        if self.validation == "Warn":
            self.warnings.extend(unknown)
        for name in _IGNORED_METADATA:
            if document["metadata"].get(name):
                self.warnings.append(f"metadata.{name} is not supported for a {self.resource.kind}, and is ignored")
        return parsed

    def _fit(self, document: Document) -> None:
        for name, expected in (("apiVersion", API_VERSION), ("kind", self.resource.kind)):
            if document.get(name) != expected:
                raise BadRequest(f"{name} must be {expected} on this path, not {_quoted(document.get(name))}")
        metadata = document.get("metadata")
        if not isinstance(metadata, dict):
            return  # the model reports the error
        for name, expected in (("name", self.name), ("namespace", self.namespace)):
            if expected and metadata.setdefault(name, expected) != expected:
                raise BadRequest(f"metadata.{name} is {_quoted(metadata[name])}, but the path says {_quoted(expected)}")


def _whole(old: QueueObject) -> Document:
    # A JSON patch may test or change the status, without effect, as it is computed: the path must exist.
    return {**to_manifest(old), "status": {}}


def _entries(old: QueueObject) -> list[Entry]:
    return [dict(entry) for entry in old.metadata.managed_fields]


def _managed(new: QueueObject, entries: list[Entry]) -> QueueObject:
    metadata = new.metadata.model_copy(update={"managed_fields": tuple(entries)})
    return new.model_copy(update={"metadata": metadata})


def _values(document: Document) -> Iterator[tuple[Path, Any]]:
    """Yield all fields that can have an owner, with their values. A list is one value, and so is an empty object."""
    return (
        (path, value)
        for path, value in _leaves(document, ())
        if can_be_owned(path) and path[0] != "f:status" and path != ("f:metadata",)
    )


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, f"f:{key}"))
    elif path:
        yield path, value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else "missing" if value is None else "not a string"


def _stop_policy(item: QueueObject) -> str:
    return item.spec.stop_policy if isinstance(item, ClusterQueue | LocalQueue) else "None"
