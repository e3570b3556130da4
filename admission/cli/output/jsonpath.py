"""kubectl's JSONPath templates: `{.metadata.name}`, `{range .items[*]}...{end}`, filters, slices, recursion.

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
"""From a value to those that one part of a path finds in it."""

_PIECE: Final = re.compile(r"""\{((?:[^{}"']|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')*)\}|([^{}]+)""")
_STEP: Final = re.compile(
    r"""\.\.(?P<anywhere>(?:\\.|[^\s.\[\]\\])+) | \.?\[(?P<bracket>(?:"[^"]*"|'[^']*'|\([^()]*\)|[^\[\]])*)\]
      | \.(?P<all>\*) | \.(?P<field>(?:\\.|[^\s.\[\]\\])+) | (?P<self>[$@])""",
    re.VERBOSE,
)
_FILTER: Final = re.compile(r"\?\(\s*(?P<left>@[^\s=!<>]*)\s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<right>.+?))?\s*\)")
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip
_SLICE: Final = re.compile(r"(-?\d*):(-?\d*)(?::(\d+))?")


@dataclass(frozen=True, slots=True)
class _Values:
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class _Range:
    steps: tuple[Step, ...]
    body: tuple[_Node, ...]


_Node: TypeAlias = str | _Values | _Range


def render(template: str, document: Any) -> str:
    """The text that `template` makes of a document. Raises ValueError for what is no template."""
    return "".join(_rendered(parse(template), document))


def find(path: str, document: Any) -> list[Any]:
    """The values that a single path, such as `.metadata.name`, finds. Raises ValueError for what is none."""
    match parse(path):
        case (_Values(steps),):
            return [*_walk(steps, document)]
        case _:
            raise _no_template(path, "as one path")


def parse(template: str) -> tuple[_Node, ...]:
    """The parts of a template, for `render`. Raises ValueError with a sentence for what is none."""
    template = template if "{" in template else f"{{{template}}}"
    open_ranges: list[tuple[_Node, ...]] = []
    paths: list[tuple[Step, ...]] = []
    nodes: tuple[_Node, ...] = ()
    at = 0
    while at < len(template):
        piece = _PIECE.match(template, at)
        if piece is None:
            raise _no_template(template, f'at "{template[at : at + 20]}"')
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
                raise _no_template(template, "{end} without {range}")
            nodes = (*open_ranges.pop(), _Range(paths.pop(), nodes))
        elif expression[:1] in ("'", '"'):
            nodes += (_literal(expression, template),)
        else:
            nodes += (_Values(_steps(expression, template)),)
    if open_ranges:
        raise _no_template(template, "{range} without {end}")
    return nodes


def _steps(path: str, template: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    at = 0
    # kubectl lets the first dot out: {metadata.name}
    path = path if path[:1] in (".", "[", "$", "@") else f".{path}"
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise _no_template(template, f'at "{path[at:]}"')
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
        raise _no_template(template, f'at "[{text}]"') from error
    return lambda value: (
        [value[index] for index in indices if -len(value) <= index < len(value)] if isinstance(value, list) else ()
    )


def _filter(text: str, template: str) -> Step:
    found = _FILTER.fullmatch(text)
    if found is None:
        raise _no_template(template, f'at "[{text}]"')
    left = _steps(found["left"], template)
    if found["operator"] is None:
        return lambda value: [item for item in _all(value) if any(True for _ in _walk(left, item))]
    compare, wanted = _OPERATORS[found["operator"]], _literal(found["right"], template)

    def holds(item: Any) -> bool:
        for value in _walk(left, item):
            try:
                return compare(value, wanted)
            except TypeError:  # of different types: neither is the greater one
                return False
        return False

    return lambda value: [item for item in _all(value) if holds(item)]


def _field(name: str) -> Step:
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else ()


def _anywhere(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]
        for inner in _all(value):
            yield from step(inner)

    return step


def _all(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


def _walk(steps: Iterable[Step], value: Any) -> Iterable[Any]:
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
        raise _no_template(template, f"at {text}") from error


def _unescaped(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _no_template(template: str, fault: str) -> ValueError:
    return ValueError(f"the JSONPath template {template} cannot be read {fault}; write one such as {{.metadata.name}}")
