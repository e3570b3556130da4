"""Conversion of Events between core/v1, in which they are stored, and events.k8s.io/v1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.apiserver.resources import VersionConversion

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

# Names of one field in core/v1 and in events.k8s.io/v1; other fields have the same name in both.
_NAMES = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
)
_TO_VIEW, _TO_STORAGE = dict(_NAMES), {new: old for old, new in _NAMES}
_OPTIONAL = ("reportingController", "reportingInstance")
_ALWAYS: tuple[tuple[str, object], ...] = (
    ("source", {}), ("firstTimestamp", None), ("lastTimestamp", None), ("eventTime", None),
    ("reportingComponent", ""), ("reportingInstance", ""),
)  # fmt: skip


def _from_storage(obj: Object) -> Object:
    shown = {_TO_VIEW.get(key, key): value for key, value in obj.items()}
    for key in _OPTIONAL:
        if not shown.get(key):
            shown.pop(key, None)
    shown["apiVersion"] = "events.k8s.io/v1"
    return shown


def _to_storage(obj: Object) -> Object:
    stored = {_TO_STORAGE.get(key, key): value for key, value in obj.items()}
    for key, empty in _ALWAYS:
        stored.setdefault(key, empty)
    stored["apiVersion"] = "v1"
    return stored


EVENTS_VIEW = VersionConversion(("", "events"), _from_storage, _to_storage)
