"""Interpretation of patches of workloads: changes of `spec` (orders), or states of admission checks. Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationError

from admission.model.base import Int32, Model, Name
from admission.model.checks import CheckReport
from admission.model.errors import InvalidObject
from admission.model.manifests import faults
from admission.store.errors import Conflict
from admission.store.objects.queue_objects import CHANGE_REASON
from admission.store.workloads.places import QueuePlace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.api.http.responses import Document
    from admission.store.workloads.orders import OrderFields

_ADMISSION = "quotaReservedAt"
"""The field of a check's state that tells one admission of a workload from another."""
_SERVER_FIELDS = ("lastTransitionTime", "retryCount", _ADMISSION)
"""Fields of a check's state that Sluice sets, not the check's controller."""
_CHANGEABLE = ("active", "hold", "order", "priority", "queueName")
"""Fields of a workload's spec that can be patched."""
_Bool = Annotated[bool, Field(strict=True)]


class _OrderedPlace(Model):
    """`spec.order` as written: either field."""

    top: Literal[True] | None = None
    before: Annotated[str, Field(min_length=1, max_length=507)] | None = None


class _SpecChange(Model):
    """Values of the changed fields; None for fields that were removed."""

    active: _Bool | None = None
    hold: _Bool | None = None
    order: _OrderedPlace | None = None
    priority: Int32 | None = None
    queue_name: Name | None = None


@dataclass(frozen=True, slots=True)
class SpecPatch:
    """The order that a patch of `spec` requests."""

    changes: OrderFields
    place_before: str | None = None
    """Name of the workload before which to place this one; the caller looks it up and sets `changes["place"]`."""


def check_identity(before: Document, after: Document) -> None:
    """Check uid and resourceVersion of a patched document, as preconditions. Raises Conflict and InvalidObject."""
    old, new = before["metadata"], after.get("metadata")
    if not isinstance(new, dict):
        raise InvalidObject([("metadata", "must be an object")], subject=_subject(before))
    if new.get("uid") != old["uid"]:
        raise Conflict(f"{_subject(before)} has the uid {old['uid']}, not {new.get('uid')}; read it again")
    if new.get("resourceVersion") != old["resourceVersion"]:
        raise Conflict(
            f"{_subject(before)} has changed meanwhile (resourceVersion {old['resourceVersion']}, not "
            f"{new.get('resourceVersion')}); read it again and apply your change to that"
        )


def spec_patch(before: Document, after: Document) -> SpecPatch:
    """Return the order that follows from the difference. Raises InvalidObject for changes of other fields."""
    causes = [(path, _refusal(path)) for path in _differences(before, after, "") if not _is_changeable(path)]
    if causes:
        raise InvalidObject(causes, subject=_subject(before))
    old, new = before["spec"], after["spec"]
    changed = {name: new.get(name) for name in _CHANGEABLE if _differ(old.get(name), new.get(name))}
    if isinstance(changed.get("order"), dict):  # a merge patch keeps the computed fields of the old order
        changed["order"] = {key: value for key, value in changed["order"].items() if key not in ("priority", "since")}
    try:
        values = _SpecChange.model_validate(changed, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidObject(
            [(f"spec.{path}", text) for path, text in faults(error)], subject=_subject(before)
        ) from error
    changes: OrderFields = {}
    if "active" in changed:
        changes["active"] = values.active is not False
    if "hold" in changed:
        changes["held"] = bool(values.hold)
    if "priority" in changed:
        changes["priority"] = values.priority
    if "queueName" in changed:
        changes["local_queue"] = values.queue_name
    place = values.order
    if "order" in changed:
        if place is not None and bool(place.top) == bool(place.before):
            message = 'must be {"top": true} or {"before": "<workload>"}, or left out'
            raise InvalidObject([("spec.order", message)], subject=_subject(before))
        changes["place"] = QueuePlace() if place is not None else None
    return SpecPatch(changes, place.before if place is not None else None)


def check_reports(before: Document, after: Document) -> list[CheckReport]:
    """Return the admission checks whose state has changed.

    Raises Conflict for the answer to a former admission, and InvalidObject for changes of other status fields.
    """
    status = after.get("status")
    if not isinstance(status, dict):
        raise InvalidObject([("status", "must be an object")], subject=_subject(before))
    old, new = dict(before["status"]), dict(status)
    old_checks, new_checks = old.pop("admissionChecks", []), new.pop("admissionChecks", [])
    causes = [(path, "cannot be changed: only status.admissionChecks can") for path in _differences(old, new, "status")]
    if causes:
        raise InvalidObject(causes, subject=_subject(before))
    if not isinstance(new_checks, list):
        raise InvalidObject([("status.admissionChecks", "must be a list")], subject=_subject(before))
    old_reports = [_report(check) for check in old_checks]
    current = {check.get(_ADMISSION) for check in old_checks}
    reports = []
    for position, item in enumerate(new_checks):
        if (report := _report(item)) in old_reports:
            continue
        if isinstance(item, dict) and item.get(_ADMISSION) not in (None, *current):
            raise Conflict(
                f"{_subject(before)}: the answer for status.admissionChecks[{position}] is about the admission of "
                f"{item[_ADMISSION]}, which has ended; read the workload again and answer about its present admission"
            )
        try:
            reports.append(CheckReport.model_validate(report, by_alias=True, by_name=False))
        except ValidationError as error:
            path = f"status.admissionChecks[{position}]"
            found = [(f"{path}.{field}" if field else path, text) for field, text in faults(error)]
            raise InvalidObject(found, subject=_subject(before)) from error
    return reports


def change_reason(before: Document, after: Document) -> str:
    """Return the reason in the annotation `sluice.dev/change-reason`, which is stored with the order."""
    new = after["metadata"].get("annotations")
    text = new.get(CHANGE_REASON, "") if isinstance(new, dict) else ""
    return text if isinstance(text, str) else ""


def _report(check: Any) -> Any:
    """Return the fields of a check's state that its controller sets."""
    if not isinstance(check, dict):
        return check
    return {key: value for key, value in check.items() if key not in _SERVER_FIELDS and value is not None}


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    """Yield the paths of the fields in which two documents differ, descending as long as both values are objects."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if _differ(before, after):
            yield path
        return
    for key in (*before, *(key for key in after if key not in before)):
        yield from _differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)


def _differ(before: Any, after: Any) -> bool:
    return before != after or type(before) is not type(after)  # in Python 1 == True, in JSON not


def _is_changeable(path: str) -> bool:
    # A changed status is ignored, as for every kind with the subresource status.
    fields = path.split(".")
    if fields[0] == "status" or path == f"metadata.annotations.{CHANGE_REASON}":
        return True
    return fields[0] == "spec" and len(fields) > 1 and fields[1] in _CHANGEABLE


def _refusal(path: str) -> str:
    listed = ", ".join(f"spec.{name}" for name in _CHANGEABLE)
    return f"cannot be changed: of a workload only {listed} can; change its object instead"


def _subject(document: Document) -> str:
    return f'Workload "{document["metadata"]["name"]}"'
