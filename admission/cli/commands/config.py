"""`sluice config`: the settings of `sluice serve`, before it is started with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import BaseModel, SecretStr
from pydantic.alias_generators import to_camel

from admission.cli.arguments.groups import Group
from admission.cli.configuration.documentation import example as example_file
from admission.cli.configuration.local_file import LocalFile
from admission.cli.configuration.settings import Settings, load_settings, origin, read_settings
from admission.cli.configuration.settings_options import settings_options
from admission.cli.output.printing import output_option, serialized
from admission.cli.output.tables import aligned
from admission.store.database.connection import Location

if TYPE_CHECKING:
    from admission.cli.configuration.settings_file import SettingsFile


@click.group(cls=Group)
def config() -> None:
    """Write, check and show the settings of `sluice serve`.

    \b
    Examples:
      sluice config example > sluice.yaml
      sluice config check sluice.yaml
      sluice config show --config sluice.yaml
    """


@config.command()
def example() -> None:
    """Print a configuration file with all settings, what they mean and their defaults.

    Everything in it is a comment, so that it changes nothing as it is.

    \b
    Example:
      sluice config example > sluice.yaml
    """
    click.echo(example_file(), nl=False)


@config.command()
@click.argument("file", type=LocalFile())
def check(file: Path) -> None:
    """Say what is wrong in a configuration FILE, with the line, or that nothing is.

    Variables of the environment count, as they do for `sluice serve`. Nothing that the
    file names, such as databaseUrlFile, is read. The exit code is 1 if something is wrong.

    \b
    Example:
      sluice config check sluice.yaml
    """
    _, read = read_settings({}, config=file)
    number = len(read.content)
    click.echo(f"{file}: {'1 setting, and it is right' if number == 1 else f'{number} settings, all of them right'}")


@config.command()
@settings_options
@output_option("json", "yaml")
def show(*, config: Path | None, output: str | None, **flags: Any) -> None:
    """Show the settings that `sluice serve` would have with the same flags, and where each comes from.

    Passwords and tokens are left out.

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
    return [(name, _value(name, getattr(settings, name)), origin(name, flags, file)) for name in Settings.model_fields]


def _value(name: str, value: Any) -> Any:
    """What JSON can hold, without secrets."""
    if isinstance(value, SecretStr):
        return "(set)"
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, Path):
        return str(value)
    return str(Location.parse(value)) if name == "database_url" else value
