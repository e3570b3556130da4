"""What is released can be built again, byte for byte, and the documentation in it has no link that leads nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

import helm_python as helm
import pytest
from chart import DEPLOY
from pydantic.alias_generators import to_camel

from admission.cli.configuration.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

NOW = version("sluice")


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The folders of two builds by `make dist`, side by side."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "other")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"}
    command = (sys.executable, DEPLOY / "dist.py", "--site")
    running = [
        subprocess.Popen([*command, folder], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for folder in folders
    ]
    outputs = [each.communicate()[0].decode() for each in running]
    assert [each.returncode for each in running] == [0, 0], outputs
    return folders


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_two_builds_are_equal(builds: list[Path]):
    one, other = map(contents, builds)
    released = {file for file in one if file.startswith("sluice")}
    assert released == {
        f"sluice-{NOW}-py3-none-any.whl",
        f"sluice-{NOW}.tar.gz",
        f"sluice-chart-{NOW}.tgz",
        f"sluice-docs-{NOW}.tgz",
    }
    assert one.keys() == other.keys()
    assert [file for file in one if one[file] != other[file]] == []


def test_helm_takes_the_chart(builds: list[Path]):
    with helm.Chart.load(builds[0] / f"sluice-chart-{NOW}.tgz") as chart:
        assert (chart.name, chart.version) == ("sluice", NOW)
        assert not [file for file in chart.files if file["name"].startswith("ci/")]
        assert chart.render({}, name="sluice", namespace="sluice-system")


def test_the_site_has_the_references_that_are_made_from_the_code(builds: list[Path]):
    """That links and anchors lead somewhere is what its build makes sure of: it is strict."""
    reference = builds[0] / "site" / "reference"
    assert "sluice submit" in (reference / "commands.html").read_text()
    settings = (reference / "settings.html").read_text()
    assert [name for name in Settings.model_fields if to_camel(name) not in settings] == ["admin_token"]
