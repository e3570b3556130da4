"""The flags by which commands other than `sluice serve` are told where the database is."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from admission.cli.configuration.settings import ENVIRONMENT_PREFIX, load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class DatabaseFlags:
    """Where a command was told that the database is."""

    flags: Mapping[str, Any]
    config: Path | None

    @property
    def given(self) -> bool:
        """Whether a flag says so."""
        return any(value is not None for value in self.flags.values())

    def url(self) -> str:
        """The database's URL, from flags, environment, file or the default. Raises InvalidSettings."""
        return load_settings(self.flags, config=self.config).database_url


def database_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Click options for the database alone, of those of `sluice serve`; the command gets a `database`."""

    @click.option(
        "--database-url",
        help=f"sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME.  [env: {ENVIRONMENT_PREFIX}DATABASE_URL]",
    )
    @click.option(
        "--database-url-file",
        type=click.Path(path_type=Path),
        help=f"A file with that URL, in place of it.  [env: {ENVIRONMENT_PREFIX}DATABASE_URL_FILE]",
    )
    @click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar=f"{ENVIRONMENT_PREFIX}CONFIG",
        help=f"The file that `sluice serve --config` reads.  [env: {ENVIRONMENT_PREFIX}CONFIG]",
    )
    @functools.wraps(command)
    def with_database(
        *args: Any, database_url: str | None, database_url_file: Path | None, config: Path | None, **kwargs: Any
    ) -> Any:
        flags = {"database_url": database_url, "database_url_file": database_url_file}
        return command(*args, database=DatabaseFlags(flags, config), **kwargs)

    return with_database
