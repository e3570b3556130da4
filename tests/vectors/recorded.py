"""Recorded decisions of the reference, which may be missing."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "vectors"
"""Folder of the recorded decisions, beside the checkout."""


def files(pattern: str) -> list[object]:
    """Return the matching files as test parameters; a single skipped parameter if there are none."""
    found = sorted(FOLDER.glob(pattern))
    if not found:
        reason = "the recorded decisions are not here: put them into a folder `shared/vectors` beside the checkout"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason), id="absent")]
    return [pytest.param(path, id=path.stem) for path in found]
