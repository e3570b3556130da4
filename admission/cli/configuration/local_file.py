"""Click parameter type for the path of a local file, with a helpful error for URLs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from os import PathLike


EMPTY_NAME: Final = "the name of a file is empty; check whether a variable is unset"
"""Error message for the path "", which Path would take for the current directory."""


def url_fault(path: str, standard_input: str) -> str:
    """Return an error message if `path` is a URL, else an empty string.

    `standard_input` is how the command accepts standard input, such as `-f -`; the message suggests it.
    """
    if not path.startswith(("http://", "https://")):
        return ""
    return f"{path} is a URL, and only files are read; fetch it: curl -fsSL {path} | sluice ... {standard_input}"


class LocalFile(click.Path):
    """Parameter type of a path to a file that is read."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: str | PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises BadParameter for an empty one, and a URL, whose slashes Path would collapse."""
        if not str(value):
            self.fail(EMPTY_NAME, param, ctx)
        if fault := url_fault(str(value), "/dev/stdin"):
            self.fail(fault, param, ctx)
        return super().convert(value, param, ctx)
