"""Hooks of mkdocs: the page with the help of every command is generated from the command line itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from mkdocs.structure.files import File

from admission.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add `reference/commands.md` to the files of the site."""
    files.append(File.generated(config, "reference/commands.md", content=commands_page()))
    return files


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
