"""Where the recorded decisions of the reference are, if they are here at all."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "vectors"
"""Beside the checkout."""


def files(pattern: str) -> list[object]:
    """The matching files as parameters; one skipped parameter if there are none."""
    found = sorted(FOLDER.glob(pattern))
    if not found:
        reason = "the recorded decisions are not here: put them into a folder `shared/vectors` beside the checkout"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason), id="absent")]
    return [pytest.param(path, id=path.stem) for path in found]
