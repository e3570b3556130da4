"""Release artefacts of `make dist`: reproducible builds, the packaged chart, the documentation site."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import helm_python as helm
import pytest
from chart import DEPLOY
from pydantic.alias_generators import to_camel

from admission.cli.configuration.settings import Settings

NOW = version("sluice")

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Run `make dist` twice, concurrently; return the folders of both builds."""
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


def test_two_builds_are_byte_identical(builds: list[Path]):
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


def test_helm_loads_and_renders_the_packaged_chart(builds: list[Path]):
    with helm.Chart.load(builds[0] / f"sluice-chart-{NOW}.tgz") as chart:
        assert (chart.name, chart.version) == ("sluice", NOW)
        assert not [file for file in chart.files if file["name"].startswith("ci/")]
        assert chart.render({}, name="sluice", namespace="sluice-system")


def test_site_has_the_generated_references_of_commands_and_settings(builds: list[Path]):
    """Links and anchors are checked by the build itself, which is strict."""
    reference = builds[0] / "site" / "reference"
    assert "sluice submit" in (reference / "commands.html").read_text()
    settings = (reference / "settings.html").read_text()
    assert [name for name in Settings.model_fields if to_camel(name) not in settings] == ["admin_token"]
