"""The image's file tree, for the tests of the image and of the release."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from containers import build_tree


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's /opt/sluice, built once for all workers of a run; tests must not change it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    made = shared / "image-made"
    with (shared / "image-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            made.symlink_to(build_tree(shared / "image"))
    return made.resolve()
