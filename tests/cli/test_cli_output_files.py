"""The files that `sluice export` and `sluice debug bundle` write: links, FIFOs and streams keep their type."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from command_runner import TOKEN, Sluice

from admission.model.manifests import parse_manifest
from admission.store.audit_log import Author
from admission.store.store import Store
from tests import sluice_server

SLUICE = Path(sys.executable).with_name("sluice")
EXPORT = ("export", "--as", "sluice")
BUNDLE = ("debug", "bundle", "--file")


@pytest.fixture(autouse=True)
async def cohort(store: Store) -> None:
    manifest = {"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": {"name": "everyone"}, "spec": {}}
    await store.queues.create(parse_manifest(manifest), author=Author("ada"))


@pytest.mark.costly
@pytest.mark.parametrize("command", [EXPORT, BUNDLE])
async def test_write_to_a_symlink_replaces_its_target(sluice: Sluice, tmp_path: Path, command: tuple[str, ...]):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "file").write_text("old")
    for name, target in (("link", "disk/file"), ("dangling", "disk/new"), ("chain", "link")):
        (tmp_path / name).symlink_to(target)
    for name, target in (("link", "file"), ("dangling", "new"), ("chain", "file")):
        done = await sluice(*command, str(tmp_path / name))
        assert done.exit_code == 0, done.stderr
        assert (tmp_path / name).is_symlink()
        written = tmp_path / "disk" / target
        assert not written.is_symlink()
        assert stat.S_IMODE(written.stat().st_mode) == 0o600
        assert len(written.read_bytes()) > len("old")
        written.write_text("old")
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == ["file", "new"]


@pytest.mark.parametrize(("command", "start"), [(EXPORT, b"apiVersion: sluice.dev/v1\n"), (BUNDLE, b"\x1f\x8b")])
async def test_fifo_is_written_and_kept(sluice: Sluice, tmp_path: Path, command: tuple[str, ...], start: bytes):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o640)
    # Opened before the command and for both directions: the test must not wait forever for a command without output.
    with os.fdopen(os.open(fifo, os.O_RDWR | os.O_NONBLOCK), "rb", buffering=0) as reader:
        done = await sluice(*command, str(fifo))
        assert done.exit_code == 0, done.stderr
        assert stat.S_ISFIFO(fifo.stat().st_mode)
        assert stat.S_IMODE(fifo.stat().st_mode) == 0o640
        assert (reader.read(1000) or b"").startswith(start)


async def test_write_to_a_link_to_stdout_appends_to_the_redirected_file(
    sluice: Sluice, tmp_path: Path, warm_sluice: dict[str, str]
):
    # A link like /dev/stdout, but not /dev/stdout itself, which a defect would replace.
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    (tmp_path / "all").write_text("before\n")
    script = '"$0" export --as sluice stdout >> all && echo after >> all'
    out = await shell(sluice_server.COMMAND, script, tmp_path, sluice.environment | warm_sluice)
    assert out == (0, "")
    lines = (tmp_path / "all").read_text().splitlines()
    assert (lines[:2], lines[-1]) == (["before", "apiVersion: sluice.dev/v1"], "after")
    assert (tmp_path / "stdout").is_symlink()


@pytest.mark.costly
async def test_closed_standard_output_is_reported_without_a_traceback(sluice: Sluice, tmp_path: Path):
    # By the interpreter: a process of the warm server has all three streams.
    code, errors = await shell(SLUICE, '"$0" export --as sluice >&-', tmp_path, sluice.environment)
    assert code == 2
    assert "standard output is closed; specify a FILE" in errors.splitlines()[-1]
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("script", "code", "says"),
    [
        ('"$0" export --as sluice ""', 2, "the name of the file to write is empty; name a FILE"),
        ('"$0" debug bundle --file=', 2, "the name of the file to write is empty; name a FILE"),
        ('ln -s loop loop; "$0" export --as sluice loop', 1, "loop cannot be written (Too many levels of symbolic"),
    ],
)
async def test_unwritable_output_is_reported_without_a_traceback(
    sluice: Sluice, tmp_path: Path, warm_sluice: dict[str, str], script: str, code: int, says: str
):
    done = await shell(sluice_server.COMMAND, script, tmp_path, sluice.environment | warm_sluice)
    assert done[0] == code, done
    assert says in done[1].splitlines()[-1]
    assert "Traceback" not in done[1]


async def shell(command: Path, script: str, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and standard error of a script in which "$0" is the command."""
    done = await asyncio.to_thread(
        subprocess.run,
        ["sh", "-c", script, str(command)],
        cwd=folder,
        env=os.environ | environment | {"SLUICE_TOKEN": TOKEN},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr
