"""Parser of forms, the documents that describe kinds: for built-in kinds and for user-defined ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.kinds import paths
from admission.kinds.children import PLACEHOLDERS, ChildForm
from admission.kinds.form import Form
from admission.kinds.places import Ended, PodSetForm
from admission.kinds.predicates import Above, All, HasCondition, NoneOf, OneOf, Reaches
from admission.model.errors import InvalidObject
from admission.model.names import is_dns_label, is_dns_subdomain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.kinds.paths import Path
    from admission.kinds.predicates import Predicate

_FORM = (
    "group", "kind", "plural", "versions", "suspend", "managedBy", "podSets", "active", "ready", "succeeded", "failed",
    "children", "scales", "priorityClass",
)  # fmt: skip
_CHILD = ("group", "kind", "name", "nameFrom", "podSet")
_POD_SET = (
    "path", "name", "nameFrom", "template", "replicas", "minimum", "maximum", "times", "parallelism", "completions",
    "unless", "ended", "minCount",
)  # fmt: skip
_PREDICATES = ("condition", "status", "path", "in", "notIn", "above", "sum", "reaches", "all")


def parse_form(document: Any, *, where: str = "") -> Form:
    """Return the form that a document describes. Raises InvalidObject, with the path of each fault after `where`."""
    reader = _FormReader(where)
    form = reader.form(document)
    if reader.faults or form is None:
        raise InvalidObject(reader.faults, subject="the description of a kind")
    return form


class _FormReader:
    """Reads one document and collects its faults."""

    def __init__(self, where: str) -> None:
        self.faults: list[tuple[str, str]] = []
        self._where = where

    def form(self, document: Any) -> Form | None:
        body = self._object(document, "", _FORM)
        if body is None:
            return None
        versions = body.get("versions")
        if (
            not isinstance(versions, list)
            or not versions
            or not all(isinstance(v, str) and is_dns_label(v) for v in versions)
        ):
            self._fault("versions", "must be a list of API versions, the preferred one first, such as [v1]")
            versions = []
        suspend = self._suspend(body)
        managed = self._object(body.get("managedBy", {}), "managedBy", ("path", "value")) or {}
        return Form(
            group=self._name(body, "group", is_dns_subdomain, "an API group such as example.com"),
            kind=self._name(body, "kind", str.isalnum, "the kind's name, such as TrainingRun"),
            plural=self._name(body, "plural", is_dns_label, "the resource's name, such as trainingruns"),
            versions=tuple(versions),
            suspend=suspend[0],
            suspend_older=suspend[1:],
            pod_sets=tuple(self._pod_sets(body.get("podSets"))),
            active=self._predicates(body, "active"),
            ready=self._predicates(body, "ready"),
            succeeded=self._predicates(body, "succeeded"),
            failed=self._predicates(body, "failed"),
            scales=self._scales(body),
            managed_by=self._path(managed, "path", of="managedBy.", needed=bool(managed)),
            manager=self._values(managed),
            priority_class=self._path(body, "priorityClass", needed=False),
            children=tuple(self._children(body.get("children", []))),
        )

    def _values(self, managed: Mapping[str, Any]) -> tuple[str, ...]:
        value = managed.get("value", "")
        values = value if isinstance(value, list) else [value]
        if managed and not (values and all(isinstance(each, str) and each for each in values)):
            self._fault(
                "managedBy.value", "must be the value for the kind's usual controller, or a list of such values"
            )
        return tuple(map(str, values))

    def _scales(self, body: Mapping[str, Any]) -> bool:
        value = body.get("scales", False)
        if not isinstance(value, bool):
            self._fault("scales", "must be true or false")
        return value is True

    def _suspend(self, body: Mapping[str, Any]) -> tuple[Path, ...]:
        """Return the paths of the suspend field, that of the newest version first."""
        suspend = body.get("suspend")
        if isinstance(suspend, list) and suspend:
            found = tuple(self._parse(text, "suspend") for text in suspend)
        else:
            found = (self._path(body, "suspend"),)
        if any(paths.EACH in path for path in found):
            self._fault("suspend", "must be one field, without [*]")
        return found

    def _pod_sets(self, items: Any) -> Iterable[PodSetForm]:
        if not isinstance(items, list) or not items:
            self._fault("podSets", "must be a list of at least one pod set, each with path and template")
            return
        for number, item in enumerate(items):
            at = f"podSets[{number}]."
            body = self._object(item, at[:-1], _POD_SET)
            if body is None:
                continue
            if ("name" in body) == ("nameFrom" in body):
                self._fault(f"{at}name", "give name, or nameFrom with the path of the field that has it")
            ended = self._object(body["ended"], f"{at}ended", ("items", "name", "count")) if "ended" in body else None
            times = body.get("times", [])
            yield PodSetForm(
                path=self._path(body, "path", of=at),
                template=self._path(body, "template", of=at),
                name=str(body.get("name", "")),
                times=tuple(
                    self._parse(text, f"{at}times") for text in (times if isinstance(times, list) else [times])
                ),
                ended=None
                if ended is None
                else Ended(*(self._path(ended, key, of=f"{at}ended.") for key in ("items", "name", "count"))),
                min_count=self._min_count(body, at),
                **{
                    field: self._path(body, key, of=at, needed=False)
                    for field, key in (("name_from", "nameFrom"), *((key, key) for key in _NUMBERS))
                },
            )

    def _min_count(self, body: Mapping[str, Any], at: str) -> Path | None:
        if "minCount" not in body:
            return None
        if "replicas" not in body or "ended" in body:
            self._fault(f"{at}minCount", "needs replicas, which a start with fewer pods lowers, and excludes ended")
        return () if body["minCount"] is True else self._path(body, "minCount", of=at)

    def _children(self, items: Any) -> Iterable[ChildForm]:
        if not isinstance(items, list):
            self._fault("children", "must be a list of objects, each with group, kind and name")
            return
        for number, item in enumerate(items):
            at = f"children[{number}]."
            body = self._object(item, at[:-1], _CHILD)
            if body is None:
                continue
            if ("name" in body) == ("nameFrom" in body):
                self._fault(f"{at}name", "give name, or nameFrom with the path of the field that has it")
            pattern, name = str(body.get("name", "")), str(body.get("name", ""))
            for placeholder in PLACEHOLDERS:
                name = name.replace(placeholder, "", 1)
            if "{" in name or "}" in name:
                self._fault(f"{at}name", f"may hold {', '.join(PLACEHOLDERS)}, each once, and no other braces")
            yield ChildForm(
                group=self._name(body, "group", is_dns_subdomain, "an API group such as batch", of=at),
                kind=self._name(body, "kind", str.isalnum, "the child's kind, such as Job", of=at),
                name=pattern,
                name_from=self._path(body, "nameFrom", of=at, needed=False),
                pod_set=str(body.get("podSet", "")),
            )

    def _predicates(self, body: Mapping[str, Any], field: str, *, at: str = "") -> tuple[Predicate, ...]:
        items = body.get(field, [])
        if not isinstance(items, list):
            self._fault(f"{at}{field}", "must be a list of tests, one of which has to be true")
            return ()
        found = (self._predicate(item, f"{at}{field}[{number}]") for number, item in enumerate(items))
        return tuple(predicate for predicate in found if predicate is not None)

    def _predicate(self, item: Any, at: str) -> Predicate | None:
        body = self._object(item, at, _PREDICATES)
        match body:
            case None:
                return None
            case {"condition": str(name)}:
                return HasCondition(name, str(body.get("status", "True")))
            case {"path": text, "in": list(values)}:
                return OneOf(self._parse(text, f"{at}.path"), tuple(values))
            case {"path": text, "notIn": list(values)}:
                return NoneOf(self._parse(text, f"{at}.path"), tuple(values))
            case {"path": text, "above": int(number)}:
                return Above(self._parse(text, f"{at}.path"), number)
            case {"sum": list(of), "reaches": list(wanted)}:
                parsed = (tuple(self._parse(text, at) for text in each) for each in (of, wanted))
                return Reaches(*parsed)
            case {"all": list(items)}:
                return All(self._predicates({"all": items}, "all", at=f"{at}."))
            case _:
                self._fault(at, "must be condition, or path with in, notIn or above, or sum with reaches")
                return None

    def _object(self, value: Any, at: str, known: tuple[str, ...]) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            self._fault(at, f"must be an object with {', '.join(known[:4])} and so on")
            return None
        for key in value:
            if key not in known:
                self._fault(f"{at}.{key}" if at else str(key), f"is not known here; the fields are {', '.join(known)}")
        return value

    def _name(self, body: Mapping[str, Any], field: str, is_valid: Any, what: str, *, of: str = "") -> str:
        value = body.get(field)
        if not isinstance(value, str) or not is_valid(value):
            self._fault(f"{of}{field}", f"must be {what}")
            return ""
        return value

    def _path(self, body: Mapping[str, Any], field: str, *, of: str = "", needed: bool = True) -> Path:
        if field not in body:
            if needed:
                self._fault(f"{of}{field}", "is missing; give the path of the field")
            return ()
        return self._parse(body[field], f"{of}{field}")

    def _parse(self, text: Any, at: str) -> Path:
        try:
            return paths.parse(text)
        except ValueError as error:
            self._fault(at, str(error))
            return ()

    def _fault(self, at: str, message: str) -> None:
        self.faults.append((".".join(filter(None, (self._where, at))), message))


_NUMBERS = ("replicas", "minimum", "maximum", "parallelism", "completions", "unless")
