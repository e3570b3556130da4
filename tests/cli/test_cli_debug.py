"""`sluice debug bundle`: its files, that it contains no secret, and errors."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

from command_runner import TOKEN, Sluice

QUEUES = """
apiVersion: sluice.dev/v1
kind: ResourceFlavor
metadata: {name: default}
"""


def unpacked(file: Path) -> dict[str, str]:
    found = {}
    with tarfile.open(file) as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            found[member.name.removeprefix("sluice-debug/")] = content.read().decode()
    return found


async def test_a_bundle_has_the_state_and_no_secret(sluice: Sluice, tmp_path: Path):
    (tmp_path / "queues.yaml").write_text(QUEUES)
    assert (await sluice("apply", "-f", str(tmp_path / "queues.yaml"))).exit_code == 0
    file = tmp_path / "bundle.tar.gz"
    done = await sluice("debug", "bundle", f"--file={file}")
    assert done.exit_code == 0, done.output
    parts = unpacked(file)
    assert json.loads(parts["resourceflavors.json"])["items"][0]["metadata"]["name"] == "default"
    assert json.loads(parts["auditrecords.json"])["items"]
    assert parts["readyz.txt"] == "ok"
    assert json.loads(parts["versions.json"])["schema"]
    assert file.stat().st_mode & 0o077 == 0, "for its owner alone"
    assert not [name for name, text in parts.items() if TOKEN in text]


async def test_bundle_names_the_files_that_could_not_be_collected(sluice: Sluice, tmp_path: Path):
    """The API of these tests has no metrics."""
    file = tmp_path / "bundle.tar.gz"
    done = await sluice("debug", "bundle", f"--file={file}")
    assert "left out: metrics.txt: /metrics is answered by 404\n" in done.output
    assert "metrics.txt: " in unpacked(file)["errors.txt"]
    assert done.output.endswith(f"{file}: {len(unpacked(file))} files\n")


async def test_bundle_to_an_unwritable_path_is_reported_as_an_error(sluice: Sluice):
    done = await sluice("debug", "bundle", "--file=/nowhere/bundle.tar.gz")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: /nowhere/bundle.tar.gz cannot be written (No such file or directory)")
    assert len(done.stderr.splitlines()) == 1
