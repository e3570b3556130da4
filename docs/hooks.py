"""Hooks of mkdocs: pages that are generated from the code, of all commands and of all settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from mkdocs.structure.files import File

from admission.cli.configuration.documentation import example
from admission.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the generated pages to the files of the site."""
    files.append(File.generated(config, "reference/commands.md", content=commands_page()))
    files.append(File.generated(config, "reference/settings.md", content=settings_page()))
    return files


def settings_page() -> str:
    """The configuration file with all settings, and what each means, as Markdown."""
    intro = (
        "What `sluice config example` prints: every setting with its meaning, its flag and environment variable, and "
        "its default, or an example where there is none. [Settings](../configuration.md) says more of the main ones."
    )
    return "\n".join(["# All settings", "", intro, "", "```yaml", example().rstrip(), "```", ""])


def commands_page() -> str:
    """The help of `sluice` and of each of its commands, as Markdown."""
    context = click.Context(main, info_name="sluice")
    sections = ["# All commands", "", "What `sluice COMMAND --help` prints.", ""]
    for path, text in _helps(main, context):
        sections += [f"## {path}", "", "```text", text, "```", ""]
    return "\n".join(sections)


def _helps(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (found := command.get_command(context, name)) is not None and not found.hidden:
                yield from _helps(found, click.Context(found, info_name=name, parent=context))
