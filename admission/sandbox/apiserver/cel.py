"""CEL expressions: match conditions, admission policies, and the rules of custom resource schemas."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import cel

from admission.sandbox.apiserver.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.sandbox.apiserver.objects import Object


# What the match conditions of webhooks may speak of.
MATCH_VARIABLES = ("object", "oldObject", "request")


# The name that a macro gives each element: `list.exists(NAME, ...)`.
_ITERATED = re.compile(r"\.(?:all|exists|exists_one|map|filter)\(\s*(\w+)\s*,")
_TOKEN = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[A-Za-z_][\w.]*\s*\{|\w+|\S|\s+""")


class CelError(SandboxError):
    """An expression that cannot be compiled, or that fails on these values."""


@lru_cache(maxsize=512)
def compile_expression(text: str, variables: tuple[str, ...]) -> cel.Program:
    """A program that may use such variables. Raises CelError."""
    try:
        program = cel.compile(text)
    except ValueError as error:
        raise CelError(f"compilation failed: {error}") from error
    unknown = sorted(set(program.variables()) - set(variables) - set(_ITERATED.findall(text)))
    if unknown:
        raise CelError(f"compilation failed: undeclared reference to '{unknown[0]}'")
    return program


def _spoken_of(text: str, values: Object) -> Object:
    """Of `values` what an expression speaks of: their conversion is what evaluation takes its time for."""
    spoken: Object = {}
    for name, fields in _fields(text, tuple(values)).items():
        value = values[name]
        if fields is not None and isinstance(value, dict):
            value = {field: _part(value[field], inner) for field, inner in fields.items() if field in value}
        spoken[name] = value
    return spoken


def _part(value: Any, fields: frozenset[str] | None) -> Any:
    if fields is None or not isinstance(value, dict):
        return value
    return {field: value[field] for field in fields if field in value}


@lru_cache(maxsize=512)
def _fields(text: str, names: tuple[str, ...]) -> dict[str, dict[str, frozenset[str] | None] | None]:
    """The variables in an expression, each with the fields read from it, and from those; None: in any other way.

    Comparing with null needs no fields. What only looks like a variable, such as a word in a string, does no harm.
    """
    used: dict[str, dict[str, frozenset[str] | None] | None] = {}
    for name in names:
        uses = list(re.finditer(rf"(?<![\w.]){name}\b(?:\s*[!=]=\s*null\b|\.(\w+)(?:\.(\w+)\b(?!\s*\())?|)", text))
        if any(use.group() == name for use in uses):
            used[name] = None
        elif uses:
            inner: dict[str, set[str | None]] = {}
            for use in uses:
                if use.group(1):
                    inner.setdefault(use.group(1), set()).add(use.group(2))
            used[name] = {
                field: None if None in parts else frozenset(part for part in parts if part)
                for field, parts in inner.items()
            }
    return used


def structs_as_maps(text: str) -> str:
    """`Object{spec: Object.spec{...}}` as `{"spec": {...}}`: the evaluator knows maps, and no types with fields."""
    result: list[str] = []
    brackets: list[bool] = []  # of each that is open, whether it holds the fields of a struct
    field = False
    for word in _TOKEN.findall(text):
        if word[-1] in "([{" and word[0] not in "'\"":
            brackets.append(field := len(word) > 1)
            result.append(word[-1])
            continue
        result.append(f'"{word}"' if field and word.isidentifier() else word)
        if word in ")]}" and brackets:
            brackets.pop()
        if not word.isspace():
            field = word == "," and bool(brackets) and brackets[-1]
    return "".join(result)


def evaluate(program: cel.Program, values: Object) -> bool:
    """The truth of an expression. Raises CelError when it fails or is no truth value."""
    result = value_of(program, values)
    if not isinstance(result, bool):
        raise CelError("must evaluate to bool")
    return result


def value_of(program: cel.Program, values: Object) -> Any:
    """What an expression evaluates to. Raises CelError when it fails."""
    spoken = _spoken_of(program.source, values)
    try:
        return program.execute(cel.Context(spoken, _FUNCTIONS) if _CALLED.search(program.source) else spoken)
    except KeyError as error:
        raise CelError(f"no such key: {error.args[0] if error.args else error}") from error
    except (ValueError, TypeError, RuntimeError) as error:
        raise CelError(str(error)) from error


def _escape_key(_: object, key: str) -> str:
    """`jsonpatch.escapeKey(KEY)`: a key as a JSON pointer names it."""
    return key.replace("~", "~0").replace("/", "~1")


_FUNCTIONS: dict[str, Callable[..., Any]] = {"escapeKey": _escape_key, "split": str.split, "trim": str.strip}
"""Of Kubernetes' libraries of CEL, which the evaluator has not: it is given them where they are called."""
_CALLED = re.compile(rf"\.({'|'.join(_FUNCTIONS)})\(")
