"""An argument that names a file: a URL in its place is told to be one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from os import PathLike


def url_fault(path: str, standard_input: str) -> str:
    """What to say of a URL in the place of a file; empty for anything else. `standard_input`: how that is given."""
    if not path.startswith(("http://", "https://")):
        return ""
    return f"{path} is a URL, and only files are read; fetch it: curl -fsSL {path} | sluice ... {standard_input}"


class LocalFile(click.Path):
    """The type of an argument whose value is the path of a file to read."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: str | PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. Raises BadParameter for a URL, whose slashes a Path would lose."""
        if fault := url_fault(str(value), "/dev/stdin"):
            self.fail(fault, param, ctx)
        return super().convert(value, param, ctx)
