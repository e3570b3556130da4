"""The page of Kueue's features names tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.benchmarks.measure import REPOSITORY

PAGE = REPOSITORY / "docs" / "kueue-parity.md"
SHOWN = dict.fromkeys(re.findall(r"`tests/(\S+\.py)::(\w+)`", PAGE.read_text()))


@pytest.mark.parametrize(("file", "test"), SHOWN, ids=str)
def test_each_test_that_the_page_names_exists(file, test):
    assert f"def {test}(" in (REPOSITORY / "tests" / file).read_text()
