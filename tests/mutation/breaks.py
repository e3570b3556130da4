"""Small breaks of the engine: functions with one thing changed in each, by the operators of mutmut."""

from __future__ import annotations
import __future__

import ast
import difflib
import importlib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import libcst
from mutmut.mutation.file_mutation import create_mutations, deep_replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FunctionType


@dataclass(frozen=True, slots=True)
class Break:
    """One function with one thing changed."""

    name: str
    """`module.function.number`, or `module.Class.method.number`; the numbers follow the source."""
    function: FunctionType
    before: str
    source: str

    @property
    def module(self) -> str:
        """The last part of the module's name."""
        return self.name.partition(".")[0]

    @property
    def diff(self) -> str:
        """What is changed."""
        lines = difflib.unified_diff(self.before.splitlines(), self.source.splitlines(), lineterm="", n=1)
        return "\n".join(list(lines)[2:])

    def apply(self) -> None:
        """Break the function in this process, for all who have imported it, under whatever name."""
        code = compile(self.source, self.name, "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)
        made: dict[str, Any] = {}
        exec(code, self.function.__globals__, made)
        (broken,) = made.values()
        self.function.__code__ = broken.__code__
        self.function.__defaults__ = broken.__defaults__
        self.function.__kwdefaults__ = broken.__kwdefaults__


def breaks(package: str, patterns: Iterable[str]) -> Iterator[Break]:
    """All breaks of the package's modules whose name matches one of the patterns.

    Left out, as by mutmut, are decorated functions and what is in no function.
    """
    folder = Path(importlib.import_module(package).__file__ or "").parent
    for path in sorted(folder.glob("*.py")):
        if any(fnmatchcase(path.stem, pattern.partition(".")[0]) for pattern in patterns):
            for one in _breaks_of(path, vars(importlib.import_module(f"{package}.{path.stem}"))):
                if any(fnmatchcase(one.name, pattern) for pattern in patterns):
                    yield one


def _breaks_of(path: Path, namespace: dict[str, Any]) -> Iterator[Break]:
    module, mutations, _, _ = create_mutations(str(path), path.read_text())
    homes: dict[libcst.CSTNode, tuple[str, dict[str, Any]]] = {}
    for statement in module.body:
        if isinstance(statement, libcst.ClassDef):
            name = statement.name.value
            homes |= {member: (f"{path.stem}.{name}", vars(namespace[name])) for member in statement.body.body}
        homes[statement] = path.stem, namespace
    numbers: dict[libcst.FunctionDef, int] = {}
    for mutation in mutations:
        function = mutation.contained_by_top_level_function
        if not isinstance(function, libcst.FunctionDef):
            continue
        number = numbers[function] = numbers.get(function, 0) + 1
        owner, home = homes[function]
        found = home[function.name.value]
        changed = deep_replace(function, mutation.original_node, mutation.mutated_node)
        before, source = (libcst.Module([node]).code.strip() + "\n" for node in (function, changed))
        if _meaning(before) != _meaning(source):
            name = f"{owner}.{function.name.value}.{number}"
            yield Break(name, getattr(found, "__func__", found), before, source)


def _meaning(source: str) -> str:
    """What tells two functions apart. That sequences are equally long, `zip` only makes sure."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "strict"]
    return ast.dump(tree)
