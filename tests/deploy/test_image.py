"""The file tree of the image, built without a daemon, and `sluice serve` in it: uid 65532, a root that is read-only."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from contextlib import asynccontextmanager
from importlib.metadata import distribution
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chart import DEPLOY, Object
from ports import free_port

from admission.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = DEPLOY.parent
PINS = dict(re.findall(r"^(\S+)==(\S+)", (DEPLOY / "image" / "requirements.txt").read_text(), re.MULTILINE))
SIZE = 170 * 2**20
"""Bytes that the tree may have; Python comes on top."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the image has in /opt/sluice: the pinned distributions as they are installed here, and the wheel."""
    folder = tmp_path_factory.mktemp("image") / "opt" / "sluice"
    for name in PINS:
        for file in distribution(name).files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                _copy(file.locate(), folder / file)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder.parent / "wheel"]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (folder.parent / "wheel").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    subprocess.run([sys.executable, DEPLOY / "image" / "finish.py", folder], check=True)
    return folder


def _copy(file: Path, target: Path) -> None:
    """With its byte code, if Python has compiled it already: that need not be done again here."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, target)
    if file.suffix == ".py":
        compiled = Path(cache_from_source(file))
        if compiled.exists():
            Path(cache_from_source(target)).parent.mkdir(exist_ok=True)
            shutil.copyfile(compiled, cache_from_source(target))


def test_what_is_pinned_for_the_image_is_what_is_tested():
    constraints = dict(re.findall(r"^(\S+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert PINS.items() <= constraints.items()
    assert {name: distribution(name).version for name in PINS} == PINS


def test_the_tree_is_small_compiled_and_without_what_is_for_trying_things_out(tree: Path):
    files = [file for file in tree.rglob("*") if file.is_file()]
    assert size(tree) < SIZE
    assert not [name for name in ("admission/sandbox", "admission/cli/demo", "bin") if (tree / name).exists()]
    assert not [file for file in files if file.suffix in (".c", ".h", ".pyx")]
    sources = [file for file in files if file.suffix == ".py" and "lib2to3" not in file.parts]
    compiled = [file for file in sources if (file.parent / "__pycache__" / f"{file.stem}.cpython-311.pyc").exists()]
    assert compiled == sources


def test_a_bill_of_materials_names_all_of_it(tree: Path):
    bill = json.loads((tree / "sbom.cdx.json").read_text())
    assert {each["name"].lower().replace("_", "-"): each["version"] for each in bill["components"]} == PINS
    assert bill["metadata"]["component"]["name"] == "sluice"


def test_commands_that_are_not_in_the_image_say_so(tree: Path):
    done = run_in(tree, "demo")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        'Error: this installation, as the image, is without "demo"',
    )
    assert run_in(tree, "version").stdout.startswith("sluice ")


def size(tree: Path) -> int:
    return sum(file.stat().st_size for file in tree.rglob("*") if file.is_file())


def run_in(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    command = [sys._base_executable, "-m", "admission.cli.main", *arguments]  # type: ignore[attr-defined]
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)


# Binds all that is needed into a folder, makes everything but /run/sluice and /tmp read-only, and goes there as the
# user of the image. It is what a container runtime does, within namespaces of this process alone.
ENTER = """
set -eu
root=$1; python=$2; shift 2
mount --bind "$root" "$root"
for place in /usr /lib /lib64 /bin /etc "$python" "$ROOT_TREE"; do
  [ -e "$place" ] || continue
  target=$root$place
  [ "$place" = "$ROOT_TREE" ] && target=$root/opt/sluice
  mkdir -p "$target"
  mount --bind "$place" "$target"
  mount -o remount,ro,bind "$target"
done
mkdir -p "$root/dev" "$root/run/sluice" "$root/tmp"
mount --rbind /dev "$root/dev"
mount -o remount,ro,bind "$root"
for place in run/sluice tmp; do mount -t tmpfs -o mode=1777 tmpfs "$root/$place"; done
mkdir -p "$root/run/sluice/given"
cp -r "$GIVEN"/. "$root/run/sluice/given"
chmod -R a+rX "$root/run/sluice/given"
exec chroot --userspec=65532:65532 "$root" "$python/bin/python3.11" "$@"
"""


@asynccontextmanager
async def contained(tree: Path, folder: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`sluice` with these arguments as a container of the image would run it; `folder` is in /run/sluice/given."""
    root = folder / "root"
    root.mkdir()
    given = folder / "given"
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": "/opt/sluice",
        "PYTHONSAFEPATH": "1",
        "HOME": "/nonexistent",
        "ROOT_TREE": str(tree),
        "GIVEN": str(given),
    }
    enter = ("unshare", "--mount", "--propagation=private", "sh", "-c", ENTER, "sh", str(root), sys.base_prefix)
    process = await asyncio.create_subprocess_exec(
        *enter, "-m", "admission.cli.main", *arguments, env=environment, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _may_unshare() -> bool:
    command = ["unshare", "--mount", "true"]
    return shutil.which("unshare") is not None and subprocess.run(command, check=False).returncode == 0


@pytest.mark.skipif(not _may_unshare(), reason="needs the right to make a mount namespace, which root has")
async def test_sluice_serves_as_nobody_on_a_root_that_is_read_only(tree: Path, tmp_path: Path):
    given = tmp_path / "given"
    given.mkdir()
    port = free_port()
    async with Sandbox(controllers=False) as sandbox:
        sandbox.write_kubeconfig(given / "kubeconfig")
        began = time.monotonic()
        async with contained(
            tree,
            tmp_path,
            "serve",
            "--kubeconfig=/run/sluice/given/kubeconfig",
            "--database-url=sqlite:////run/sluice/sluice.db",
            "--certificate-directory=/run/sluice/certificates",
            f"--api-address=127.0.0.1:{port}",
            "--log-format=json",
        ) as process:
            lines: list[Object] = []
            assert process.stderr is not None
            while line := await process.stderr.readline():
                lines.append(json.loads(line))
                if "decides from now on" in lines[-1]["message"]:
                    break
            took = time.monotonic() - began
            assert any("decides from now on" in each["message"] for each in lines), lines
            assert owner(process.pid) == 65532
    print(f"the tree has {size(tree) / 2**20:.1f} MiB; from the start of the process until it decides: {took:.1f} s")


def owner(process: int) -> int:
    return Path(f"/proc/{process}").stat().st_uid
