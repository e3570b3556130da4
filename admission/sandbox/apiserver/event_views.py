"""Events as events.k8s.io/v1 shows them: the same objects as those of core/v1 under other names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.apiserver.resources import View

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

# Field names of core/v1 and of events.k8s.io/v1; all others are the same.
_NAMES = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
)
_OUTWARD, _INWARD = dict(_NAMES), {new: old for old, new in _NAMES}
_OPTIONAL = ("reportingController", "reportingInstance")
_ALWAYS: tuple[tuple[str, object], ...] = (
    ("source", {}), ("firstTimestamp", None), ("lastTimestamp", None), ("eventTime", None),
    ("reportingComponent", ""), ("reportingInstance", ""),
)  # fmt: skip


def _outward(obj: Object) -> Object:
    shown = {_OUTWARD.get(key, key): value for key, value in obj.items()}
    for key in _OPTIONAL:
        if not shown.get(key):
            shown.pop(key, None)
    shown["apiVersion"] = "events.k8s.io/v1"
    return shown


def _inward(obj: Object) -> Object:
    stored = {_INWARD.get(key, key): value for key, value in obj.items()}
    for key, empty in _ALWAYS:
        stored.setdefault(key, empty)
    stored["apiVersion"] = "v1"
    return stored


EVENTS_VIEW = View(("", "events"), _outward, _inward)
