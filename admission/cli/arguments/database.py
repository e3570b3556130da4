"""Options that name the database, for commands other than `sluice serve`."""

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
    """Values of `--database-url`, `--database-url-file` and `--config`."""

    flags: Mapping[str, Any]
    """`database_url` and `database_url_file`; None: not given."""
    config: Path | None

    @property
    def is_set(self) -> bool:
        """Whether a flag names the database; a configuration file alone does not count."""
        return any(value is not None for value in self.flags.values())

    def url(self) -> str:
        """Return the database's URL, from flags, environment, file or the default. Raises InvalidSettings."""
        return load_settings(self.flags, config=self.config).database_url


def database_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the database options of `sluice serve` to a command, which receives them as `database`."""

    @click.option(
        "--database-url",
        metavar="URL",
        help=f"sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME.  [env: {ENVIRONMENT_PREFIX}DATABASE_URL]",
    )
    @click.option(
        "--database-url-file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help=f"File that contains the database URL.  [env: {ENVIRONMENT_PREFIX}DATABASE_URL_FILE]",
    )
    @click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar=f"{ENVIRONMENT_PREFIX}CONFIG",
        help=f"Configuration file of `sluice serve`.  [env: {ENVIRONMENT_PREFIX}CONFIG]",
    )
    @functools.wraps(command)
    def with_database(
        *args: Any, database_url: str | None, database_url_file: Path | None, config: Path | None, **kwargs: Any
    ) -> Any:
        flags = {"database_url": database_url, "database_url_file": database_url_file}
        return command(*args, database=DatabaseFlags(flags, config), **kwargs)

    return with_database
