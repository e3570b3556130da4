"""Existence of all `sluice` commands and options that the documentation shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from admission.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
FENCED = re.compile(r"^```(?:sh|console)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4,}(?:\$ )?((?:kubectl )?sluice .*)$", re.MULTILINE)
INLINE = re.compile(r"`(sluice [a-z][^`\n]*)`")
PLACEHOLDER = re.compile(r"\.\.\.|[\[\]|…]")


def _commands(text: str) -> list[str]:
    fenced = [block.replace("\\\n", " ") for block in FENCED.findall(text)]
    blocks = [line.removeprefix("$ ") for block in fenced for line in block.splitlines()]
    lines = [line for line in blocks if re.match(r"(kubectl )?sluice ", line)] + INDENTED.findall(text)
    return lines + [line for line in INLINE.findall(text) if not PLACEHOLDER.search(line)]


def _resolve(line: str) -> None:
    """Parse the line as the command line does; raises click.UsageError."""
    words = shlex.split(line.removeprefix("kubectl "), comments=True)[1:]
    for end in ("&", "|", ">", "<", "&&", ";", "2>&1"):
        words = words[: words.index(end)] if end in words else words
    context = click.Context(main, info_name="sluice")
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        if command.name == "import" and command.get_command(context, words[0]) is None:
            words = ["file", *words]  # `sluice import FILE` is short for that
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command, context = found, click.Context(found, info_name=name, parent=context)
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    options = words[: words.index("--")] if "--" in words else words
    for word in options:
        if word.startswith("--") and word.split("=")[0] not in known | {"--help", "--version"}:
            raise click.NoSuchOption(word, ctx=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_the_page_exist(page):
    failures = []
    for line in _commands(page.read_text()):
        try:
            _resolve(line)
        except (click.UsageError, ValueError) as error:
            failures.append(f"{line}: {error}")
    assert not failures
