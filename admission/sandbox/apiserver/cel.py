"""CEL expressions: match conditions, admission policies and validation rules of custom resources."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import cel

from admission.sandbox.apiserver.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.sandbox.apiserver.objects import Object


# Variables that are declared for the match conditions of webhooks.
MATCH_VARIABLES = ("object", "oldObject", "request")


# Captures the iteration variable of a macro: `list.exists(NAME, ...)`.
_ITERATED = re.compile(r"\.(?:all|exists|exists_one|map|filter)\(\s*(\w+)\s*,")
_TOKEN = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[A-Za-z_][\w.]*\s*\{|\w+|\S|\s+""")


class CelError(SandboxError):
    """The expression does not compile, or its evaluation failed."""


@lru_cache(maxsize=512)
def compile_expression(text: str, variables: tuple[str, ...]) -> cel.Program:
    """Return the compiled expression. Raises CelError on a syntax error or a variable that is not in `variables`."""
    try:
        program = cel.compile(text)
    except ValueError as error:
        raise CelError(f"compilation failed: {error}") from error
    unknown = sorted(set(program.variables()) - set(variables) - set(_ITERATED.findall(text)))
    if unknown:
        raise CelError(f"compilation failed: undeclared reference to '{unknown[0]}'")
    return program


def conjuncts(text: str) -> list[str]:
    """Return the operands of an expression `(a) && (b)`, or the expression alone if it is none.

    To evaluate them one after the other converts the input of those that are reached only.
    """
    parts, depth = [""], 0
    if "//" in text:  # perhaps a comment
        return [text]
    for word in _TOKEN.findall(text):
        depth += (word[-1] in "([{" and word[0] not in "'\"") - (word in ")]}")
        if not depth and word in "|?":
            return [text]
        if not depth and word == "&":
            if parts[-1].strip():
                parts.append("")
        else:
            parts[-1] += word
    return parts


def _used_values(text: str, values: Object) -> Object:
    """Return the part of `values` that the expression reads: converting inputs takes most of an evaluation's time."""
    used: Object = {}
    for name, fields in _fields(text, tuple(values)).items():
        value = values[name]
        if fields is not None and isinstance(value, dict):
            value = {field: _part(value[field], inner) for field, inner in fields.items() if field in value}
        used[name] = value
    return used


def _part(value: Any, fields: frozenset[str] | None) -> Any:
    if fields is None or not isinstance(value, dict):
        return value
    return {field: value[field] for field in fields if field in value}


@lru_cache(maxsize=512)
def _fields(text: str, names: tuple[str, ...]) -> dict[str, dict[str, frozenset[str] | None] | None]:
    """Return the fields that an expression reads: variable -> field -> subfields; None: the whole value is used.

    Comparing with null needs no fields. A false match, such as a variable's name inside a string, only keeps more
    of the input.
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
    """Rewrite typed literals to maps: `Object{spec: Object.spec{...}}` to `{"spec": {...}}`.

    The evaluator has maps but no types with fields.
    """
    result: list[str] = []
    brackets: list[bool] = []  # for each open bracket, whether it encloses the fields of a struct literal
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
    """Return the boolean that the expression evaluates to. Raises CelError if it fails or yields another type."""
    result = value_of(program, values)
    if not isinstance(result, bool):
        raise CelError("must evaluate to bool")
    return result


def value_of(program: cel.Program, values: Object) -> Any:
    """Return the value that the expression evaluates to. Raises CelError if it fails."""
    used = _used_values(program.source, values)
    try:
        return program.execute(cel.Context(used, _FUNCTIONS) if _CALLED.search(program.source) else used)
    except KeyError as error:
        raise CelError(f"no such key: {error.args[0] if error.args else error}") from error
    except (ValueError, TypeError, RuntimeError) as error:
        raise CelError(str(error)) from error


def _escape_key(_: object, key: str) -> str:
    """Implement `jsonpatch.escapeKey(KEY)`: escape `~` and `/` for a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _join(items: list[str], separator: str) -> str:
    return separator.join(items)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "escapeKey": _escape_key,
    "join": _join,
    "split": str.split,
    "trim": str.strip,
}
"""Functions of Kubernetes' CEL libraries that the evaluator lacks, passed to the expressions that call them."""
_CALLED = re.compile(rf"\.({'|'.join(_FUNCTIONS)})\(")
