"""Validation of object metadata, the same for all kinds (apimachinery's pkg/api/validation/objectmeta.go)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import Cause, duplicate, forbidden, invalid, required

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.resources import ServedResource

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_LABEL = re.compile(_LABEL)
DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
QUALIFIED_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
ANNOTATIONS_LIMIT = 256 * 1024
STANDARD_FINALIZERS = frozenset(("orphan", "foregroundDeletion", "kubernetes"))

_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_NAME_PART_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)


def subdomain_fault(name: str) -> str:
    """Return the validation message for a name that is no DNS subdomain; empty if it is one."""
    if len(name) > 253:
        return "must be no more than 253 bytes"
    return "" if DNS_SUBDOMAIN.fullmatch(name) else _SUBDOMAIN_TEXT


def label_fault(name: str) -> str:
    """Return the validation message for a name that is no DNS label; empty if it is one."""
    if len(name) > 63:
        return "must be no more than 63 bytes"
    return "" if DNS_LABEL.fullmatch(name) else _LABEL_TEXT


@lru_cache(maxsize=4096)
def key_fault(key: str) -> str:
    """Return the validation message for a text that is no qualified name (a label's key); empty if it is one."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or subdomain_fault(prefix)):
        return f"prefix part {subdomain_fault(prefix) or 'must be non-empty'}"
    if not name or len(name) > 63:
        return "name part must be non-empty" if not name else "name part must be no more than 63 bytes"
    return "" if QUALIFIED_NAME.fullmatch(name) else _NAME_PART_TEXT


@lru_cache(maxsize=4096)
def value_fault(value: str) -> str:
    """Return the validation message for a text that is no label value; empty if it is one."""
    if len(value) > 63:
        return "must be no more than 63 bytes"
    return "" if LABEL_VALUE.fullmatch(value) else _VALUE_TEXT


def label_causes(labels: Object, field: str) -> list[Cause]:
    """Return the validation errors of a map of labels; `field` is its path."""
    causes = []
    for key, value in labels.items():
        if fault := key_fault(key):
            causes.append(invalid(field, key, fault))
        if fault := value_fault(value):
            causes.append(invalid(field, value, fault))
    return causes


def annotation_causes(annotations: Object, field: str) -> list[Cause]:
    """Return the validation errors of a map of annotations; `field` is its path."""
    causes = [invalid(field, key, fault) for key in annotations if (fault := key_fault(key.lower()))]
    if sum(len(key) + len(value) for key, value in annotations.items()) > ANNOTATIONS_LIMIT:
        causes.append(Cause("FieldValueTooLong", field, f"Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"))
    return causes


def validate_new_metadata(resource: ServedResource, metadata: Object) -> list[Cause]:
    """Return the validation errors of a new object's metadata."""
    causes = []
    name = metadata.get("name", "")
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    elif fault := resource.strategy.name_fault(name):
        causes.append(invalid("metadata.name", name, fault))
    if "labels" in metadata:
        causes += label_causes(metadata["labels"], "metadata.labels")
    return causes + _common_causes(metadata)


def _common_causes(metadata: Object) -> list[Cause]:
    causes = []
    if "annotations" in metadata:
        causes += annotation_causes(metadata["annotations"], "metadata.annotations")
    for index, finalizer in enumerate(metadata.get("finalizers", ())):
        field = f"metadata.finalizers[{index}]"
        if fault := key_fault(finalizer):
            causes.append(invalid(field, finalizer, fault))
        elif "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(invalid(field, finalizer, text))
    return causes + _owner_causes(metadata.get("ownerReferences", ()))


def _owner_causes(owners: list[Object] | tuple[()]) -> list[Cause]:
    field = "metadata.ownerReferences"
    causes = []
    for owner in owners:
        for key, text in (("apiVersion", "version must not be empty"), ("kind", "must not be empty"),
                          ("name", "must not be empty"), ("uid", "must not be empty")):  # fmt: skip
            if not owner.get(key):
                causes.append(invalid(f"{field}.{key}", "", text))
    if sum(1 for owner in owners if owner.get("controller")) > 1:
        causes.append(invalid(field, owners, "Only one reference can have Controller set to true"))
    return causes


def validate_metadata_update(new: Object, old: Object) -> list[Cause]:
    """Return the validation errors of changed metadata.

    Each appears twice, as in Kubernetes, where both the generic registry and the kind's strategy validate metadata.
    """
    causes = [
        invalid(f"metadata.{key}", new.get(key), "field is immutable")
        for key in ("name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds")
        if new.get(key) != old.get(key)
    ]
    if "deletionTimestamp" in old:
        added = set(new.get("finalizers", ())) - set(old.get("finalizers", ()))
        if added:
            names = ", ".join(sorted(added))
            text = f"no new finalizers can be added if the object is being deleted, found new finalizers {names}"
            causes.append(forbidden("metadata.finalizers", text))
    if new.get("labels") != old.get("labels"):
        causes += label_causes(new.get("labels", {}), "metadata.labels")
    if any(new.get(key) != old.get(key) for key in ("annotations", "finalizers", "ownerReferences")):
        common = _common_causes(new)
        causes += common
        causes += [cause for cause in common if cause.reason == "FieldValueTooLong"]
    return causes * 2


def duplicates(values: list[str], field: str) -> list[Cause]:
    """Return an error for each value that occurs earlier in the list; `field` is the list's path."""
    seen: set[str] = set()
    causes = []
    for index, value in enumerate(values):
        if value in seen:
            causes.append(duplicate(f"{field}[{index}]", value))
        seen.add(value)
    return causes
