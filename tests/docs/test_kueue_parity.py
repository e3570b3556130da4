"""The table of Kueue's features names tests that exist, and the page has it."""

from __future__ import annotations

import ast

import pytest

from tests.benchmarks.measure import REPOSITORY
from tests.docs.kueue_parity import PAGE, TABLES, page


@pytest.mark.parametrize("shown", [row.shown for rows in TABLES.values() for row in rows if row.is_shown])
def test_each_test_exists(shown):
    file, name = shown.split("::")
    tree = ast.parse((REPOSITORY / "tests" / file).read_text())
    assert name in {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_page_is_up_to_date():
    assert PAGE.read_text() == page(), "run python -m tests.docs.kueue_parity"
