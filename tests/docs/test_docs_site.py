"""The documentation as a site: it builds, and no link or anchor in it leads nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pydantic.alias_generators import to_camel

from admission.cli.configuration.settings import Settings

ROOT = Path(__file__).parents[2]


def test_the_site_builds_and_every_link_leads_somewhere(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout + run.stderr) == (0, "")
    assert "sluice submit" in (tmp_path / "site" / "reference" / "commands.html").read_text()
    settings = (tmp_path / "site" / "reference" / "settings.html").read_text()
    assert [name for name in Settings.model_fields if to_camel(name) not in settings] == ["admin_token"]
