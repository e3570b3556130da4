"""Containers of the image without a container runtime: processes in mount namespaces, as `deploy/Containerfile` has it.

The file tree of the image is made from the wheel and from the pinned distributions as they are installed here.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import distribution
from importlib.util import cache_from_source
from pathlib import Path

from chart import DEPLOY

from admission.store.database.tables import SCHEMA_VERSION

PINS = dict(re.findall(r"^(\S+)==(\S+)", (DEPLOY / "image" / "requirements.txt").read_text(), re.MULTILINE))
"""Versions of the distributions in the image besides Sluice, by name."""

# Binds the needed folders into a new root, makes everything read-only except writable volumes, and changes to that root
# as the image's user, as a container runtime does; all in a mount namespace of this process.
ENTER = """
set -eu
root=$1; python=$2; shift 2
mount --bind "$root" "$root"
for place in /usr /lib /lib64 /bin "$python" "$ROOT_TREE"; do
  [ -e "$place" ] || continue
  target=$root$place
  [ "$place" = "$ROOT_TREE" ] && target=$root/opt/sluice
  mkdir -p "$target"
  mount --bind "$place" "$target"
  mount -o remount,ro,bind "$target"
done
mkdir -p "$root/dev" "$root/run/sluice" "$root/tmp" "$root/var/lib/sluice"
while IFS='>' read -r source target; do
  mkdir -p "$root$target"
  mount --bind "$source" "$root$target"
  mount -o remount,ro,bind "$root$target"
done <"$VOLUMES"
mount --rbind /dev "$root/dev"
mount -o remount,ro,bind "$root"
for place in run/sluice tmp var/lib/sluice; do mount -t tmpfs -o mode=1777 tmpfs "$root/$place"; done
exec chroot --userspec=65532:65532 "$root" "$python/bin/python3.11" "$@"
"""


def may_unshare() -> bool:
    """Return whether this process may create mount namespaces, as root may."""
    command = ["unshare", "--mount", "true"]
    return shutil.which("unshare") is not None and subprocess.run(command, check=False).returncode == 0


def build_tree(folder: Path, *, sources: Path = DEPLOY.parent) -> Path:
    """Build the image's /opt/sluice in `folder`/opt/sluice and return it; `sources` is a checkout."""
    tree = folder / "opt" / "sluice"
    for name in PINS:
        for file in distribution(name).files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                _copy(file.locate(), tree / file)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "wheel"]
    subprocess.run(build, cwd=sources, check=True, capture_output=True)
    (wheel,) = (folder / "wheel").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tree)
    subprocess.run([sys.executable, DEPLOY / "image" / "finish.py", tree], check=True)
    return tree


def _copy(file: Path, target: Path) -> None:
    """Copy a file, with its byte code if it is compiled already, which saves compiling it again."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, target)
    if file.suffix == ".py":
        compiled = Path(cache_from_source(file))
        if compiled.exists():
            Path(cache_from_source(target)).parent.mkdir(exist_ok=True)
            shutil.copyfile(compiled, cache_from_source(target))


NEXT_SCHEMA = f"{int(SCHEMA_VERSION) + 1:04}"
NEXT_MIGRATION = f'''
"""What the release after this one might add: a column that the release before does not know."""

import sqlalchemy as sa
from alembic import op

revision = "{NEXT_SCHEMA}"
down_revision = "{SCHEMA_VERSION}"


def upgrade() -> None:
    op.add_column("workloads", sa.Column("added_next", sa.Text()))


def downgrade() -> None:
    op.drop_column("workloads", "added_next")
'''


def next_release(tree: Path, folder: Path) -> Path:
    """Return the tree of a later release: the same program with one more migration."""
    shutil.copytree(tree, folder, copy_function=os.link)
    (folder / "admission" / "_migrations" / "versions" / f"{NEXT_SCHEMA}_next.py").write_text(NEXT_MIGRATION)
    tables = folder / "admission" / "store" / "database" / "tables.py"
    _replace(tables, f'SCHEMA_VERSION = "{SCHEMA_VERSION}"', f'SCHEMA_VERSION = "{NEXT_SCHEMA}"')
    Path(cache_from_source(tables)).unlink()
    (metadata,) = folder.glob("sluice-*.dist-info/METADATA")
    _replace(metadata, "Version: 0.1.0", "Version: 0.2.0")
    return folder


def _replace(file: Path, before: str, after: str) -> None:
    """Replace text in a new copy of the file, which is a hard link to another tree's file."""
    text = file.read_text()
    assert before in text
    file.unlink()
    file.write_text(text.replace(before, after, 1))


@asynccontextmanager
async def contained(
    tree: Path, folder: Path, arguments: Sequence[str], *, volumes: Mapping[str, Path], **variables: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `sluice` with these arguments during the block, as a container of the image would, with its log as a pipe.

    `volumes` are folders by mount path; they are read-only. The process is terminated at the end of the block.
    """
    root = folder / "root"
    root.mkdir(parents=True)
    (folder / "volumes").write_text("".join(f"{source}>{target}\n" for target, source in volumes.items()))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": "/opt/sluice",
        "PYTHONSAFEPATH": "1",
        "HOME": "/nonexistent",
        "ROOT_TREE": str(tree),
        "VOLUMES": str(folder / "volumes"),
        **variables,
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
