"""Group of subcommands that suggests a name for an unknown one."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

WAYS_TO_PAUSE: Final = """\b
Which command pauses what:
  hold, release      Jobs: they stop, and wait until they are released
  cancel             Jobs, for ever: they are deleted
  stop, resume       a queue: what is in it waits; stop --drain stops what runs, too
  gate off, gate on  Sluice, in an emergency: Jobs start without quota
deactivate and activate are other names of hold and release.
"""
"""Epilog of the help of each of these commands."""


def similar(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a mistyped one probably means, one with the same letters first; None: none is near."""
    near = difflib.get_close_matches(name, known)
    return min(near, key=lambda each: sorted(each) != sorted(name), default=None)


class CommandGroup(click.Group):
    """Click group whose error for an unknown subcommand names the most similar one, or all of them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand that is named. Raises UsageError for an unknown one."""
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            near = similar(name.lower(), known)
            hint = f'did you mean "{near}"?' if near else f"available commands: {', '.join(known)}"
            raise click.UsageError(f'unknown command "{name}" for "{ctx.info_name}"; {hint}', ctx)
        return super().resolve_command(ctx, args)
