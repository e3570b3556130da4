"""JSONPath templates as in kubectl: `{.metadata.name}`, `{range .items[*]}...{end}`, filters, slices, recursion.

A missing field is empty, not an error, as for `kubectl get`; lists and objects are printed as JSON.
"""

from __future__ import annotations

import json
import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Step: TypeAlias = "Callable[[Any], Iterable[Any]]"
"""One part of a path: function from a value to the values that it selects in it."""

_PIECE: Final = re.compile(r"""\{((?:[^{}"']|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')*)\}|([^{}]+)""")
"""An expression in braces, which may contain quoted braces, or literal text."""
_STEP: Final = re.compile(
    r"""\.\.(?P<anywhere>(?:\\.|[^\s.\[\]\\])+) | \.?\[(?P<bracket>(?:"[^"]*"|'[^']*'|\([^()]*\)|[^\[\]])*)\]
      | \.(?P<all>\*) | \.(?P<field>(?:\\.|[^\s.\[\]\\])+) | (?P<self>[$@])""",
    re.VERBOSE,
)
_FILTER: Final = re.compile(r"\?\(\s*(?P<left>@[^\s=!<>]*)\s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<right>.+?))?\s*\)")
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip
_SLICE: Final = re.compile(r"(-?\d+)?:(-?\d+)?(?::([1-9]\d*))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of a path, separated by blanks: `{.items[*].metadata.name}`."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class _Range:
    """A part repeated for each value of a path: `{range .items[*]}...{end}`."""

    steps: tuple[Step, ...]
    body: tuple[_Node, ...]


_Node: TypeAlias = str | _Values | _Range
"""One part of a template; a str is literal text."""


def render(template: str, document: Any) -> str:
    """Return the text of a template for a document. Raises ValueError for an invalid template."""
    return "".join(_rendered(parse(template), document))


def find(path: str, document: Any) -> list[Any]:
    """Return the values of a single path, such as `.metadata.name`. Raises ValueError for anything else."""
    match parse(path):
        case (_Values(steps),):
            return [*_walk(steps, document)]
        case _:
            raise _invalid(path, "it is not a single path")


def parse(template: str) -> tuple[_Node, ...]:
    """Parse a template. Raises ValueError, with a message for users, for an invalid one."""
    template = template if "{" in template else f"{{{template}}}"
    open_ranges: list[tuple[_Node, ...]] = []
    paths: list[tuple[Step, ...]] = []
    nodes: tuple[_Node, ...] = ()
    at = 0
    while at < len(template):
        piece = _PIECE.match(template, at)
        if piece is None:
            raise _invalid(template, f'syntax error at "{template[at : at + 20]}"')
        at = piece.end()
        expression = None if piece[1] is None else piece[1].strip()
        if expression is None:
            nodes += (piece[2],)
        elif expression.startswith("range "):
            open_ranges.append(nodes)
            paths.append(_steps(expression.removeprefix("range ").strip(), template))
            nodes = ()
        elif expression == "end":
            if not open_ranges:
                raise _invalid(template, "{end} without {range}")
            nodes = (*open_ranges.pop(), _Range(paths.pop(), nodes))
        elif expression[:1] in ("'", '"'):
            nodes += (_literal(expression, template),)
        else:
            nodes += (_Values(_steps(expression, template)),)
    if open_ranges:
        raise _invalid(template, "{range} without {end}")
    return nodes


def _steps(path: str, template: str) -> tuple[Step, ...]:
    """Parse a path; `template` is only quoted in the ValueError for an invalid one."""
    steps: list[Step] = []
    at = 0
    # kubectl accepts a path without the first dot: {metadata.name}
    path = path if path[:1] in (".", "[", "$", "@") else f".{path}"
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise _invalid(template, f'syntax error at "{path[at:]}"')
        at = found.end()
        if found["field"] is not None:
            steps.append(_field(_unescaped(found["field"])))
        elif found["all"] is not None:
            steps.append(_all)
        elif found["anywhere"] is not None:
            steps.append(_anywhere(_unescaped(found["anywhere"])))
        elif found["bracket"] is not None:
            steps.append(_bracket(found["bracket"].strip(), template))
    return tuple(steps)


def _bracket(text: str, template: str) -> Step:
    """Parse the inside of brackets: `*`, a quoted field, a slice `1:3`, a filter `?(...)` or indices `0,2`."""
    if text == "*":
        return _all
    if text[:1] in ("'", '"') and text[-1:] == text[:1]:
        return _field(text[1:-1])
    if part := _SLICE.fullmatch(text):
        start, stop, step = (int(number) if number else None for number in part.groups())
        return lambda value: value[start:stop:step] if isinstance(value, list) else ()
    if text.startswith("?"):
        return _filter(text, template)
    try:
        indices = [int(index) for index in text.split(",")]
    except ValueError as error:
        raise _invalid(template, f'syntax error at "[{text}]"') from error
    return lambda value: (
        [value[index] for index in indices if -len(value) <= index < len(value)] if isinstance(value, list) else ()
    )


def _filter(text: str, template: str) -> Step:
    """Parse a filter: `?(@.name)` selects items that have the field, `?(@.count > 1)` compares its first value."""
    found = _FILTER.fullmatch(text)
    if found is None:
        raise _invalid(template, f'syntax error at "[{text}]"')
    left = _steps(found["left"], template)
    if found["operator"] is None:
        return lambda value: [item for item in _all(value) if any(True for _ in _walk(left, item))]
    compare, wanted = _OPERATORS[found["operator"]], _literal(found["right"], template)

    def holds(item: Any) -> bool:
        for value in _walk(left, item):
            try:
                return compare(value, wanted)
            except TypeError:  # values of different types have no order
                return False
        return False

    return lambda value: [item for item in _all(value) if holds(item)]


def _field(name: str) -> Step:
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else ()


def _anywhere(name: str) -> Step:
    """Return the step of `..name`: the field at any depth, parents first."""

    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]
        for inner in _all(value):
            yield from step(inner)

    return step


def _all(value: Any) -> Iterable[Any]:
    """Return all items of a list or values of an object; nothing for other values."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


def _walk(steps: Iterable[Step], value: Any) -> Iterable[Any]:
    """Return the values that the steps select in a value, one after the other."""
    values: Iterable[Any] = [value]
    for step in steps:
        values = [found for one in values for found in step(one)]
    return values


def _rendered(nodes: Iterable[_Node], document: Any) -> Iterator[str]:
    for node in nodes:
        match node:
            case str():
                yield node
            case _Values(steps):
                yield " ".join(map(_text, _walk(steps, document)))
            case _Range(steps, body):
                for item in _walk(steps, document):
                    yield from _rendered(body, item)


def _literal(text: str, template: str) -> Any:
    quoted = f'"{text[1:-1]}"' if text[:1] == "'" else text
    try:
        return json.loads(quoted)
    except json.JSONDecodeError as error:
        raise _invalid(template, f"syntax error at {text}") from error


def _unescaped(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _invalid(template: str, fault: str) -> ValueError:
    return ValueError(f"invalid JSONPath template {template}: {fault}; use a template such as {{.metadata.name}}")
