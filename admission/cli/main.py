"""The command `sluice`: its subcommands are imported when they are called, so that it starts fast."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version as installed_version
from typing import IO, Any, NamedTuple

import click

from admission.model.errors import SluiceError


class _Command(NamedTuple):
    module: str
    help: str


# The function has the name of the command.
_COMMANDS = {
    "serve": _Command("admission.cli.serve", "Run Sluice: controller, webhooks and REST API in one process."),
    "migrate": _Command("admission.cli.migrate", "Bring the database's tables up to date."),
    "apply": _Command("admission.cli.apply", "Create or change queue objects from manifests."),
    "get": _Command("admission.cli.get", "Show queue objects and workloads."),
    "delete": _Command("admission.cli.delete", "Delete a queue object."),
    "simulate": _Command("admission.cli.simulate", "Decide about workloads in a file, without a cluster."),
    "sandbox": _Command("admission.cli.sandbox", "Run a pretend Kubernetes cluster on this machine."),
    "demo": _Command("admission.cli.demo", "See Sluice at work in a sandbox."),
    "version": _Command("admission.cli.main", "Print the version."),
}


class _Failure(click.ClickException):
    """A SluiceError on its way to the user: one line for each fault, and exit code 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        for line in self.message.splitlines():
            click.echo(f"error: {line}", file=file, err=file is None)


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(import_module(_COMMANDS[cmd_name].module), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SluiceError as error:
            raise _Failure(str(error)) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Sluice, a queue manager for Kubernetes batch jobs.

    \b
    Try it:                    sluice demo
    Run it beside a cluster:   sluice serve --kubeconfig ~/.kube/config
    Give it queues:            sluice apply -f queues.yaml
    """


@click.command()
def version() -> None:
    """Print the version.

    \b
    Example:
      sluice version
    """
    click.echo(f"sluice {installed_version('sluice')}")


if __name__ == "__main__":
    main()
