"""What a patch of a workload's document means: orders about it, or what its admission checks say. Pure."""

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
from admission.store.workloads.places import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.api.http.responses import Document
    from admission.store.workloads.orders import Ordered

_OURS = ("lastTransitionTime", "retryCount")
"""What a check's controller does not say of it."""
_CAN_BE_ORDERED = ("active", "hold", "order", "priority", "queueName")
_Bool = Annotated[bool, Field(strict=True)]


class _Place(Model):
    top: Literal[True] | None = None
    before: Annotated[str, Field(min_length=1, max_length=507)] | None = None


class _Order(Model):
    """The values of the fields that have changed, None for those that were taken out."""

    active: _Bool | None = None
    hold: _Bool | None = None
    order: _Place | None = None
    priority: Int32 | None = None
    queue_name: Name | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be ordered. `place_before`: directly before the workload of that name, which is still to be found."""

    changes: Ordered
    place_before: str | None = None


def check_identity(before: Document, after: Document) -> None:
    """Raise Conflict if the patch is meant for another workload or version of it, and InvalidObject for nonsense."""
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


def ordered(before: Document, after: Document) -> Wanted:
    """What the difference orders. Raises InvalidObject for all that cannot be ordered."""
    causes = [(path, _refusal(path)) for path in _differences(before, after, "") if not _is_order(path)]
    if causes:
        raise InvalidObject(causes, subject=_subject(before))
    old, new = before["spec"], after["spec"]
    given = {name: new.get(name) for name in _CAN_BE_ORDERED if _differ(old.get(name), new.get(name))}
    if isinstance(given.get("order"), dict):  # what was there before may have been merged in
        given["order"] = {key: value for key, value in given["order"].items() if key not in ("priority", "since")}
    try:
        wanted = _Order.model_validate(given, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidObject(
            [(f"spec.{path}", text) for path, text in faults(error)], subject=_subject(before)
        ) from error
    changes: Ordered = {}
    if "active" in given:
        changes["active"] = wanted.active is not False
    if "hold" in given:
        changes["held"] = bool(wanted.hold)
    if "priority" in given:
        changes["priority"] = wanted.priority
    if "queueName" in given:
        changes["local_queue"] = wanted.queue_name
    place = wanted.order
    if "order" in given:
        if place is not None and bool(place.top) == bool(place.before):
            message = 'must be {"top": true} or {"before": "<workload>"}, or left out'
            raise InvalidObject([("spec.order", message)], subject=_subject(before))
        changes["place"] = Place() if place is not None else None
    return Wanted(changes, place.before if place is not None else None)


def reported(before: Document, after: Document) -> list[CheckReport]:
    """The checks of which the difference says something new. Raises InvalidObject for all else in the status."""
    status = after.get("status")
    if not isinstance(status, dict):
        raise InvalidObject([("status", "must be an object")], subject=_subject(before))
    old, new = dict(before["status"]), dict(status)
    known, said = old.pop("admissionChecks", []), new.pop("admissionChecks", [])
    causes = [
        (path, "is not yours to say: only status.admissionChecks is") for path in _differences(old, new, "status")
    ]
    if causes:
        raise InvalidObject(causes, subject=_subject(before))
    if not isinstance(said, list):
        raise InvalidObject([("status.admissionChecks", "must be a list")], subject=_subject(before))
    told = [_said(check) for check in known]
    reports = []
    for position, item in enumerate(said):
        if (report := _said(item)) in told:
            continue
        try:
            reports.append(CheckReport.model_validate(report, by_alias=True, by_name=False))
        except ValidationError as error:
            path = f"status.admissionChecks[{position}]"
            found = [(f"{path}.{field}" if field else path, text) for field, text in faults(error)]
            raise InvalidObject(found, subject=_subject(before)) from error
    return reports


def change_reason(before: Document, after: Document) -> str:
    """A new reason in the workload's annotations, which is not kept there but with the order."""
    new = after["metadata"].get("annotations")
    text = new.get(CHANGE_REASON, "") if isinstance(new, dict) else ""
    return text if isinstance(text, str) else ""


def _said(check: Any) -> Any:
    if not isinstance(check, dict):
        return check
    return {key: value for key, value in check.items() if key not in _OURS and value is not None}


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    """The paths of the fields in which two documents differ, as deep as both have objects."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if _differ(before, after):
            yield path
        return
    for key in (*before, *(key for key in after if key not in before)):
        yield from _differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)


def _differ(before: Any, after: Any) -> bool:
    return before != after or type(before) is not type(after)  # 1 is not true, though Python says so


def _is_order(path: str) -> bool:
    # The status may differ: on this path it is not written, as with every kind.
    fields = path.split(".")
    if fields[0] == "status" or path == f"metadata.annotations.{CHANGE_REASON}":
        return True
    return fields[0] == "spec" and len(fields) > 1 and fields[1] in _CAN_BE_ORDERED


def _refusal(path: str) -> str:
    listed = ", ".join(f"spec.{name}" for name in _CAN_BE_ORDERED)
    return f"cannot be changed: of a workload only {listed} can; change its object instead"


def _subject(document: Document) -> str:
    return f'Workload "{document["metadata"]["name"]}"'
