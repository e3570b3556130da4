"""Preparation of an installed Sluice for the image: delete unused files, byte-compile, add an SBOM.

    python finish.py FOLDER

FOLDER: the target of `pip install --target FOLDER`. The image itself has no pip and no compiler, and its root file
system is read-only, so that Python could not write compiled modules at run time: they are compiled here, once.
"""

from __future__ import annotations

import compileall
import json
import py_compile
import shutil
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

PACKAGE = "sluice"

NEEDLESS = (
    "admission/sandbox",
    "admission/cli/demo",
    "admission/cli/commands/sandbox.py",
    "admission/cli/commands/simulate.py",
    "bin",
    "greenlet/tests",
    "greenlet/platform",
    "kubernetes_asyncio/test",
    "kubernetes_asyncio/e2e_test",
    "mako/ext",
    "sqlalchemy/testing",
)
"""Paths that `sluice serve`, `webhook`, `migrate` and the commands on the database and the API never import."""

NEEDLESS_SUFFIXES = (".pyi", ".pyx", ".pxd", ".pxi", ".c", ".cc", ".cpp", ".h", ".hpp", ".html.orig")


def main() -> None:
    """Prepare the folder given on the command line."""
    folder = Path(sys.argv[1])
    strip(folder)
    (folder / "sbom.cdx.json").write_text(json.dumps(bill_of_materials(folder), indent=1))
    compile_all(folder)


def strip(folder: Path) -> None:
    """Delete the files that are not needed."""
    for name in NEEDLESS:
        found = folder / name
        if found.is_dir():
            shutil.rmtree(found)
        else:
            found.unlink(missing_ok=True)
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.suffix in NEEDLESS_SUFFIXES:
            file.unlink()


def compile_all(folder: Path) -> None:
    """Byte-compile all modules reproducibly: the result does not depend on modification times."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    if not compileall.compile_dir(
        folder, quiet=1, stripdir=str(folder), prependdir="/opt/sluice", invalidation_mode=mode, workers=0
    ):
        raise SystemExit("error: not all modules could be compiled")


def bill_of_materials(folder: Path) -> dict[str, object]:
    """Return the SBOM of the distributions in the folder, as CycloneDX JSON."""
    found = sorted(distributions(path=[str(folder)]), key=lambda one: one.metadata["Name"].lower())
    components = [_component(one) for one in found if one.metadata["Name"] != PACKAGE]
    (own,) = (_component(one) for one in found if one.metadata["Name"] == PACKAGE)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**own, "type": "application"}},
        "components": components,
    }


def _component(distribution: Distribution) -> dict[str, object]:
    name, version = distribution.metadata["Name"], distribution.version
    licence = distribution.metadata.get("License-Expression") or distribution.metadata.get("License")
    reference = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    component: dict[str, object] = {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "purl": reference,
    }
    if licence and "\n" not in licence:
        component["licenses"] = [{"license": {"name": licence}}]
    return component


if __name__ == "__main__":
    main()
