"""`sluice config`: example file, validation and effective values of the settings of `sluice serve`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import BaseModel, SecretStr
from pydantic.alias_generators import to_camel

from admission.cli.arguments.groups import CommandGroup
from admission.cli.configuration.documentation import example as example_file
from admission.cli.configuration.local_file import LocalFile
from admission.cli.configuration.settings import Settings, load_settings, origin, read_settings
from admission.cli.configuration.settings_options import settings_options
from admission.cli.errors import InvalidSettings
from admission.cli.output.printing import output_option, serialized
from admission.cli.output.tables import aligned
from admission.model.errors import StoreError
from admission.store.database.connection import Location

if TYPE_CHECKING:
    from admission.cli.configuration.settings_file import SettingsFile


@click.group(cls=CommandGroup)
def config() -> None:
    """Print, validate and inspect the settings of `sluice serve`.

    \b
    Examples:
      sluice config example > sluice.yaml
      sluice config check sluice.yaml
      sluice config show --config sluice.yaml
    """


@config.command()
def example() -> None:
    """Print a configuration file with all settings, their descriptions and defaults.

    All of it is commented out: as it is, the file changes nothing.

    \b
    Example:
      sluice config example > sluice.yaml
    """
    click.echo(example_file(), nl=False)


@config.command()
@click.argument("file", type=LocalFile())
def check(file: Path) -> None:
    """Validate a configuration FILE, and print errors with their line numbers.

    Environment variables are validated with it, as by `sluice serve`. Files that it
    names, such as databaseUrlFile, are not read. The exit code is 1 if it is invalid.

    \b
    Example:
      sluice config check sluice.yaml
    """
    settings, read = read_settings({}, config=file)
    try:
        Location.parse(settings.database_url)
    except StoreError as error:
        raise InvalidSettings(f"databaseUrl in {origin('database_url', {}, read)}: {error}") from error
    number = len(read.content)
    click.echo(f"{file}: {'1 setting, valid' if number == 1 else f'{number} settings, all valid'}")


@config.command()
@settings_options
@output_option("json", "yaml")
def show(*, config: Path | None, output: str | None, **flags: Any) -> None:
    """Show the effective settings of `sluice serve` with the same flags, and the source of each.

    Passwords and tokens are not shown.

    \b
    Examples:
      sluice config show --config sluice.yaml
      SLUICE_LOG_LEVEL=debug sluice config show -o json
    """
    _, read = read_settings(flags, config=config)
    rows = _rows(load_settings(flags, config=config), flags, read)
    if output is not None:
        document = {to_camel(name): {"value": value, "from": source} for name, value, source in rows}
        click.echo(serialized(document, output))
        return
    lines = [["SETTING", "VALUE", "FROM"]]
    lines += [[to_camel(name), "" if value is None else str(value), source] for name, value, source in rows]
    for line in aligned(lines):
        click.echo(line)


def _rows(settings: Settings, flags: dict[str, Any], file: SettingsFile) -> list[tuple[str, Any, str]]:
    """Return (name, value without secrets, source) of each setting."""
    return [(name, _value(name, getattr(settings, name)), origin(name, flags, file)) for name in Settings.model_fields]


def _value(name: str, value: Any) -> Any:
    """Return a value as JSON, without secrets."""
    if isinstance(value, SecretStr):
        return "(set)"
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, Path):
        return str(value)
    return str(Location.parse(value)) if name == "database_url" else value
