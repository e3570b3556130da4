"""Groups of commands that answer a wrong name with the one that was probably meant."""

from __future__ import annotations

import difflib

import click


class Group(click.Group):
    """A group that names the nearest of its commands, or all, for one that it has not."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named. Raises UsageError."""
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            near = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"its commands: {', '.join(known)}"
            raise click.UsageError(f'"{name}" is no command of {ctx.info_name}; {hint}', ctx)
        return super().resolve_command(ctx, args)
