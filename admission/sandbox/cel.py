"""CEL expressions: the match conditions of webhooks and the rules of custom resource schemas."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import cel

from admission.sandbox.errors import SandboxError

if TYPE_CHECKING:
    from admission.sandbox.objects import Object


# What the match conditions of webhooks may speak of.
MATCH_VARIABLES = ("object", "oldObject", "request")


class CelError(SandboxError):
    """An expression that cannot be compiled, or that fails on these values."""


@lru_cache(maxsize=512)
def compile_expression(text: str, variables: tuple[str, ...]) -> cel.Program:
    """A program that may use such variables. Raises CelError."""
    try:
        program = cel.compile(text)
    except ValueError as error:
        raise CelError(f"compilation failed: {error}") from error
    unknown = sorted(set(program.variables()) - set(variables))
    if unknown:
        raise CelError(f"compilation failed: undeclared reference to '{unknown[0]}'")
    return program


def _spoken_of(text: str, values: Object) -> Object:
    """Of `values` what an expression speaks of: their conversion is what evaluation takes its time for."""
    spoken: Object = {}
    for name, fields in _fields(text, tuple(values)).items():
        value = values[name]
        if fields is not None and isinstance(value, dict):
            value = {field: value[field] for field in fields if field in value}
        spoken[name] = value
    return spoken


@lru_cache(maxsize=512)
def _fields(text: str, names: tuple[str, ...]) -> dict[str, frozenset[str] | None]:
    """The variables in an expression, each with the fields read from it; None if it is used in any other way.

    Comparing with null needs no fields. What only looks like a variable, such as a word in a string, does no harm.
    """
    used: dict[str, frozenset[str] | None] = {}
    for name in names:
        uses = list(re.finditer(rf"(?<![\w.]){name}\b(?:\s*[!=]=\s*null\b|\.(\w+)|)", text))
        if uses:
            other = any(use.group() == name for use in uses)
            used[name] = None if other else frozenset(use.group(1) for use in uses if use.group(1))
    return used


def evaluate(program: cel.Program, values: Object) -> bool:
    """The truth of an expression. Raises CelError when it fails or is no truth value."""
    try:
        result = program.execute(_spoken_of(program.source, values))
    except KeyError as error:
        raise CelError(f"no such key: {error.args[0] if error.args else error}") from error
    except (ValueError, TypeError, RuntimeError) as error:
        raise CelError(str(error)) from error
    if not isinstance(result, bool):
        raise CelError("must evaluate to bool")
    return result
