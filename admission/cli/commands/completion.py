"""`sluice completion`: script for the shell completion of commands, types and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    Examples:
      source <(sluice completion bash)
      sluice completion zsh > ~/.zfunc/_sluice
      sluice completion fish > ~/.config/fish/completions/sluice.fish
    """
    from admission.cli.main import main

    shell_class = get_completion_class(shell)
    assert shell_class is not None
    click.echo(shell_class(main, {}, "sluice", "_SLUICE_COMPLETE").source())
