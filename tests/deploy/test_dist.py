"""What is released can be built again, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

import helm_python as helm
from chart import DEPLOY

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path) -> dict[str, bytes]:
    subprocess.run([sys.executable, DEPLOY / "dist.py", folder], check=True, capture_output=True)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_two_builds_are_equal_and_helm_takes_the_chart(tmp_path: Path):
    one, other = build(tmp_path / "one"), build(tmp_path / "other")
    now = version("sluice")
    names = {f"sluice-{now}-py3-none-any.whl", f"sluice-{now}.tar.gz", f"sluice-chart-{now}.tgz"}
    assert one.keys() == {*names, ".gitignore"} & one.keys() | names
    assert one == other
    with helm.Chart.load(tmp_path / "one" / f"sluice-chart-{now}.tgz") as chart:
        assert (chart.name, chart.version) == ("sluice", now)
        assert not [file for file in chart.files if file["name"].startswith("ci/")]
        assert chart.render({}, name="sluice", namespace="sluice-system")
