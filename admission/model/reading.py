"""Parser for YAML and JSON files, with limits on size, depth and aliases: no input can exhaust memory or time."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import yaml

from admission.model.errors import InvalidObject

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_BYTES: Final = 3 * 2**20
"""Bytes of a text at most: the API server's own limit for one request."""
MAX_VALUES: Final = 500_000
"""Values in one document at most, including those in lists and objects."""
_MAX_DEPTH: Final = 64
"""Levels of nesting at most."""
_MAX_NUMBER: Final = 64
"""Characters of a number in YAML at most. In base 60, or beyond 4,300 digits, parsing time grows with their square."""
_LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_NO_NUL: Final = "holds the character U+0000, which no database text may: remove it"
_NO_SURROGATE: Final = "holds half of a character (a surrogate such as \\ud800): remove it"

_Path: TypeAlias = "tuple[_Path, str | int] | None"
"""Path of a value as a linked list: (path of the parent, key or index); None: the document itself."""

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file, with its origin for messages: `queues.yaml: document 2`."""

    source: str
    body: Mapping[str, Any]


def parse_documents(text: str, *, source: str, max_values: int = MAX_VALUES) -> list[Document]:
    """Return the objects of a YAML stream or a JSON text; lists (`kind: List`) are replaced by their items.

    Empty documents are skipped. A document may have up to `max_values` values, with aliases and merge keys expanded.
    Raises InvalidObject for a document that is too large, malformed, too deep, or not an object.
    """
    if len(text.encode(errors="surrogatepass")) > MAX_BYTES:
        raise InvalidObject([("", f"is larger than {MAX_BYTES // 2**20} MiB; split it")], subject=source)
    documents: list[Document] = []
    bodies = list(_load(text, source, max_values))
    for number, body in enumerate(bodies, start=1):
        where = f"{source}: document {number}" if len(bodies) > 1 else source
        if body is None:
            continue
        if not isinstance(body, dict):
            raise InvalidObject([("", "is not an object with apiVersion and kind")], subject=where)
        check_size(body, where, max_values=max_values)
        documents.extend(_flatten(body, where))
    return documents


def _flatten(body: dict[str, Any], where: str) -> Iterator[Document]:
    kind, items = body.get("kind"), body.get("items")
    if not (isinstance(kind, str) and kind.endswith("List") and "items" in body):
        yield Document(where, body)
        return
    if not isinstance(items, list):
        raise InvalidObject([("items", "must be a list")], subject=where)
    # Items of a typed list, such as a ClusterQueueList from an API server, have no apiVersion and kind of their own.
    types = {} if kind == "List" else {"apiVersion": body.get("apiVersion"), "kind": kind.removesuffix("List")}
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise InvalidObject([(f"items[{index}]", "is not an object")], subject=where)
        yield Document(f"{where}: items[{index}]", {**types, **item})


def _load(text: str, source: str, max_values: int) -> Iterator[Any]:
    try:
        if text.lstrip().startswith("{"):
            try:
                yield json.loads(text, object_pairs_hook=_unique)
            except json.JSONDecodeError:
                pass  # may be YAML in flow style; if it is neither, the YAML parser's message names the place as well
            else:
                return
        loader = _Loader(text, max_values)
        try:
            while loader.check_node():
                yield loader.document()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = error.problem or error.context or "malformed"
        if mark and _is_at_tab(text, mark.line, mark.column):
            problem = "YAML is indented with spaces, not with tabs"
        raise InvalidObject([("", f"{line}{problem}")], subject=source) from error
    except yaml.YAMLError as error:
        raise InvalidObject([("", f"is neither YAML nor JSON: {error}".replace("\n", " "))], subject=source) from error
    except RecursionError as error:
        raise InvalidObject([("", f"is nested deeper than {_MAX_DEPTH} levels")], subject=source) from error
    except ValueError as error:
        raise InvalidObject([("", str(error))], subject=source) from error


def _is_at_tab(text: str, line: int, column: int) -> bool:
    """Return whether the character at this place, or the indentation before it, is a tab, which only JSON allows."""
    before = "".join(_LINE_BREAK.split(text)[line : line + 1])[: column + 1]
    indentation = before[: len(before) - len(before.lstrip(" \t-"))]
    return "\t" in indentation and not text.lstrip().startswith(("{", "["))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f'the key "{twice}" is given twice in one object')
    return result


def check_size(body: Any, where: str, *, max_values: int = MAX_VALUES) -> None:
    """Raise InvalidObject for a document that is too large, too deep, or contains values that JSON does not have."""
    stack: list[tuple[Any, int, _Path]] = [(body, 1, None)]
    nodes = 0
    while stack:
        value, depth, path = stack.pop()
        nodes += 1
        if depth > _MAX_DEPTH:
            raise InvalidObject([("", f"is nested deeper than {_MAX_DEPTH} levels")], subject=where)
        if nodes + len(stack) + (len(value) if isinstance(value, dict | list) else 0) > max_values:
            raise InvalidObject([("", _too_many(max_values))], subject=where)
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise InvalidObject([("", f"the key {key!r} must be a string: put it in quotes")], subject=where)
                if fault := _text_fault(key):
                    raise InvalidObject([(_shown(path), f"the key {key!r} {fault}")], subject=where)
            stack.extend((item, depth + 1, (path, key)) for key, item in value.items())
        elif isinstance(value, list):
            stack.extend((item, depth + 1, (path, index)) for index, item in enumerate(value))
        elif isinstance(value, str):
            if fault := _text_fault(value):
                raise InvalidObject([(_shown(path), fault)], subject=where)
        elif not isinstance(value, int | float | None):
            raise InvalidObject(
                [("", "may hold plain values, lists and objects only, no other YAML tags")], subject=where
            )


def _text_fault(text: str) -> str:
    """Return the fault of a text with characters that a database or JSON cannot store; empty: none."""
    if "\0" in text:
        return _NO_NUL
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return _NO_SURROGATE
    return ""


def _too_many(most: int) -> str:
    return f"has more than {most} values; split it"


def _shown(path: _Path) -> str:
    """Format a path as in field errors: `spec.flavors[0].name`."""
    steps = []
    while path is not None:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) or not step.isidentifier() else f".{step}")
    return "".join(reversed(steps)).removeprefix(".")


class _Loader(_Base):  # type: ignore[misc]  # the C loader if PyYAML was built with it, else the Python one
    """A SafeLoader that limits depth and size, refuses duplicate keys, and keeps timestamps as text, like JSON."""

    def __init__(self, text: str, max_values: int) -> None:
        super().__init__(text)
        self._max_values = max_values
        self._values = 0
        self._depth = 0

    def document(self) -> Any:
        """Return the next document. Raises YAMLError, and ValueError if it is too large or too deep."""
        self._values = 0
        node = self.get_node()
        # With aliases and nested merge keys a few bytes can expand to any size: measure before construction.
        if _size(node, {}) > self._max_values:
            raise ValueError(_too_many(self._max_values))
        return self.construct_document(node)

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        self._values += 1
        if self._values > 2 * self._max_values:  # keys are nodes as well
            raise ValueError(_too_many(self._max_values))
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"is nested deeper than {_MAX_DEPTH} levels")
        super().descend_resolver(current_node, current_index)

    def ascend_resolver(self) -> None:
        self._depth -= 1
        super().ascend_resolver()

    def construct_number(self, node: Any) -> Any:
        if len(node.value) > _MAX_NUMBER:
            raise ValueError(f"line {node.start_mark.line + 1}: a number has more than {_MAX_NUMBER} characters")
        is_int = node.tag == "tag:yaml.org,2002:int"
        return self.construct_yaml_int(node) if is_int else self.construct_yaml_float(node)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = key_node.value
            if isinstance(key, str) and key_node.tag != "tag:yaml.org,2002:merge":
                if key in seen:
                    problem = f'the key "{key}" is given twice in one object'
                    raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
                seen.add(key)
        result: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return result


def _size(node: Any, known: dict[int, int]) -> int:
    """Return the number of values of a node with all aliases expanded; `known` caches it by id of the node."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    size = known.get(id(node))
    if size is None:
        known[id(node)] = 0
        size = known[id(node)] = 1 + sum(_size(child, known) for child in _children(node))
    elif size == 0:
        raise ValueError(f"line {node.start_mark.line + 1}: an alias stands for what it is a part of")
    return size


def _children(node: Any) -> Iterator[Any]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
        return
    for key, item in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise ValueError(f"line {key.start_mark.line + 1}: a key must be a string")  # noqa: TRY004  a text is at fault
        yield item


for _tag in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.construct_number)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}
