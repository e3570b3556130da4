"""Reproducible build of the release artefacts in dist/: wheel, sdist, chart and, with `--site`, the documentation.

Run by `make dist`.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tarfile
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]
CHART: Final = ROOT / "deploy" / "helm" / "sluice"
EPOCH: Final = 1_577_836_800
"""2020-01-01 as Unix time (s): modification time of all packed files, unless SOURCE_DATE_EPOCH is set."""


def main() -> None:
    """Build into the folder given on the command line, or dist/."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--site"]
    target = Path(arguments[0]) if arguments else ROOT / "dist"
    environment = {"SOURCE_DATE_EPOCH": str(EPOCH), **os.environ}
    target.mkdir(parents=True, exist_ok=True)
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(target.absolute())]
    subprocess.run(build, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    when = int(environment["SOURCE_DATE_EPOCH"])
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    ignored = (CHART / ".helmignore").read_text().split()
    _pack(target / f"sluice-chart-{version}.tgz", "sluice", CHART, ignored, when=when)
    if "--site" in sys.argv:
        site = target.absolute() / "site"
        _build_site(site, environment)
        _pack(target / f"sluice-docs-{version}.tgz", "sluice-docs", site, (), when=when)
    for file in sorted(target.glob("sluice*")):
        print(file)


def _build_site(site: Path, environment: dict[str, str]) -> None:
    """Build the documentation. For a broken link exit with mkdocs' output, which `--quiet` would suppress."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--site-dir", str(site)]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)


def _pack(target: Path, name: str, folder: Path, ignored: list[str] | tuple[()], *, when: int) -> None:
    """Pack the files of a folder as `name/...`; equal files result in an equal archive."""
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=when) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for file in _files(folder, ignored):
            entry = archive.gettarinfo(file, f"{name}/{file.relative_to(folder).as_posix()}")
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mode, entry.mtime = 0o644, when
            with file.open("rb") as content:
                archive.addfile(entry, content)


def _files(folder: Path, ignored: list[str] | tuple[()]) -> Iterator[Path]:
    for file in sorted(folder.rglob("*")):
        parts = file.relative_to(folder).parts
        if file.is_file() and not any(fnmatch(part, pattern.rstrip("/")) for part in parts for pattern in ignored):
            yield file


if __name__ == "__main__":
    main()
