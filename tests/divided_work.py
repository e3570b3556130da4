"""pytest plugin that divides work among workers which each of them would do completely in a new checkout.

pytest rewrites the assertions of each test file, and Hypothesis extracts constants from each module of the project.
Both cache the results in files, but all workers start at the same time, before there are any.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
from _pytest.assertion import rewrite
from hypothesis.internal import constants_ast

T = TypeVar("T")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Rewrite the assertions of this worker's part of the test files, in the order of collection."""
    state = session.config.stash.get(rewrite.assertstate_key, None)
    if state is None:  # --assert=plain
        return
    for file in _own_part(sorted(_test_files(session.config))):
        kept = rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(file, kept) is None:
            with suppress(SyntaxError, OSError):  # the import reports syntax errors; a read-only checkout has no cache
                hash_, code = rewrite._rewrite_test(file, session.config)
                kept.parent.mkdir(exist_ok=True)
                rewrite._write_pyc(state, code, hash_, kept)


@pytest.hookimpl(tryfirst=True)  # before Hypothesis, which then reads all modules
def pytest_collection_modifyitems() -> None:
    """Extract the constants of this worker's part of the modules; all workers have imported all modules by now."""
    local = {
        file: module
        for module in list(sys.modules.values())
        if (file := getattr(module, "__file__", None)) and constants_ast.is_local_module_file(file)
    }
    for file in _own_part(sorted(local)):
        constants_ast.constants_from_module(local[file])


def _test_files(config: pytest.Config) -> Iterator[Path]:
    for argument in config.args:
        path = config.rootpath / argument.partition("::")[0]
        for pattern in ("conftest.py", *config.getini("python_files")):
            yield from [path] if path.is_file() else path.rglob(pattern)


def _own_part(all_: Sequence[T]) -> Sequence[T]:
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    return all_[number :: int(os.environ["PYTEST_XDIST_WORKER_COUNT"])]
