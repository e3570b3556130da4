"""The command `sluice`: its subcommands are imported when they are called, so that it starts fast."""

from __future__ import annotations

import difflib
import errno
import gc
import io
import os
import sys
from importlib import import_module
from importlib.metadata import version as installed_version
from keyword import iskeyword
from platform import python_version
from typing import Any, NamedTuple

import click

from admission.cli.errors import CommandError
from admission.model.errors import SluiceError
from admission.model.text import visible


class _Command(NamedTuple):
    module: str
    help: str


# The function has the name of the command.
_COMMANDS = {
    "serve": _Command("admission.cli.serve.command", "Run Sluice: controller, webhooks and REST API."),
    "webhook": _Command("admission.cli.commands.webhook", "Answer the webhooks alone, for a Deployment of their own."),
    "gate": _Command("admission.cli.commands.gate", "Take away what gates Jobs, in an emergency, and bring it back."),
    "uninstall": _Command("admission.cli.commands.uninstall", "Take away what Sluice has registered in a cluster."),
    "debug": _Command("admission.cli.commands.debug", "Find out what is wrong."),
    "kinds": _Command("admission.cli.commands.kinds", "Check descriptions of kinds, and print their rights."),
    "config": _Command("admission.cli.commands.config", "Write, check and show the settings of `sluice serve`."),
    "migrate": _Command("admission.cli.commands.migrate", "Bring the database's tables up to date."),
    "get": _Command("admission.cli.commands.get", "Show queue objects and workloads."),
    "describe": _Command("admission.cli.commands.describe", "Show all about an object."),
    "why": _Command("admission.cli.commands.why", "Say why a Job does not run, and what would help."),
    "position": _Command("admission.cli.commands.why", "Say where in the line a Job stands."),
    "top": _Command("admission.cli.commands.top", "Show how full queues are, or who holds how much."),
    "tree": _Command("admission.cli.commands.tree", "Show Cohorts and ClusterQueues as a tree, with quota and use."),
    "history": _Command("admission.cli.commands.history", "Show what has become of a queue object or a Job."),
    "apply": _Command("admission.cli.commands.apply", "Create or change queue objects from manifests."),
    "diff": _Command("admission.cli.commands.diff", "Show what apply would change."),
    "create": _Command("admission.cli.commands.create", "Create a queue object from flags."),
    "edit": _Command("admission.cli.commands.edit", "Change a queue object in your editor."),
    "delete": _Command("admission.cli.commands.delete", "Delete queue objects."),
    "rollback": _Command("admission.cli.commands.history", "Make a queue object what it was."),
    "stop": _Command("admission.cli.commands.stop", "Let a queue admit nothing more."),
    "resume": _Command("admission.cli.commands.stop", "Let a stopped queue admit again."),
    "hold": _Command("admission.cli.commands.workloads", "Keep Jobs out of the queue, or stop them."),
    "release": _Command("admission.cli.commands.workloads", "Let Jobs that are held queue again."),
    "activate": _Command("admission.cli.commands.workloads", "Let Jobs queue again that were deactivated."),
    "deactivate": _Command("admission.cli.commands.workloads", "Take Jobs out of the queue for good."),
    "move": _Command("admission.cli.commands.workloads", "Queue Jobs in another LocalQueue."),
    "prioritize": _Command("admission.cli.commands.workloads", "Change a Job's priority or place in the line."),
    "submit": _Command("admission.cli.commands.submit", "Create a Job in a queue, from flags or a manifest."),
    "logs": _Command("admission.cli.commands.logs", "Print the logs of a Job's pods."),
    "cancel": _Command("admission.cli.commands.cancel", "Delete Jobs that you have submitted."),
    "audit": _Command("admission.cli.commands.audit", "Compare the database with the cluster, and repair."),
    "report": _Command("admission.cli.commands.report", "Show who used how much."),
    "export": _Command("admission.cli.commands.export", "Write everything in the database to a file."),
    "import": _Command("admission.cli.commands.import_", "Read such a file into an empty database."),
    "simulate": _Command("admission.cli.commands.simulate", "Decide about workloads in a file, without a cluster."),
    "sandbox": _Command("admission.cli.commands.sandbox", "Run a pretend Kubernetes cluster on this machine."),
    "demo": _Command("admission.cli.demo", "See Sluice at work in a sandbox."),
    "completion": _Command("admission.cli.commands.completion", "Print the completion script of a shell."),
    "version": _Command("admission.cli.main", "Print the version."),
}


_ELSEWHERE = {
    "sbatch": "submit",
    "srun": "submit --follow",
    "squeue": "get workloads",
    "scancel": "cancel",
    "sinfo": "top queues",
    "sacct": "get workloads --all, or report usage",
    "sprio": "position",
    "sshare": "tree",
    "scontrol": "hold, release, prioritize, or edit",
    "list": "get",
    "run": "submit",
    "kill": "cancel",
    "log": "logs",
    "usage": "report usage",
}
"""What commands of Slurm, kueuectl and kubectl are called here."""


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _Group(click.Group):
    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        for number, arg in enumerate(args, start=1):
            try:
                arg.encode()
            except UnicodeEncodeError as error:
                raise click.UsageError(f"argument {number} is not UTF-8: {arg!a}") from error
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # names may be of characters that a terminal has not
        # By a link of that name it is a plugin of kubectl.
        info_name = "kubectl sluice" if info_name == "kubectl-sluice" else info_name
        return super().make_context(info_name, args, parent, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        gc.set_threshold(100_000)  # nearly all that is made by importing stays: a tenth of the time goes into looking
        module = _COMMANDS[cmd_name].module
        try:
            function = getattr(import_module(module), f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
            raise click.UsageError(f'this installation, as the image, is without "{cmd_name}"') from error
        assert isinstance(function, click.Command)
        return function

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name.lower(), _COMMANDS, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"see {ctx.command_path} --help"
            if name.lower() in _ELSEWHERE:
                hint = f"here it is: {ctx.command_path} {_ELSEWHERE[name.lower()]}"
            raise click.UsageError(f'"{name}" is no command; {hint}', ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SluiceError as error:
            for line in str(error).split("\n"):
                click.echo(f"error: {visible(line)}", err=True)
            ctx.exit(error.exit_code if isinstance(error, CommandError) else 1)
        except OSError as error:
            if error.errno not in _FULL:
                raise  # the end of a pipe is click's; what else there is, is ours to mend
            click.echo(f"error: the output cannot be written: {error.strerror}", err=True)
            # What is still buffered would fail once more at the interpreter's end, with another exit code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sluice", message="sluice %(version)s", help="Print the version.")
def main() -> None:
    """Sluice, a queue manager for Kubernetes batch jobs.

    \b
    Try it:                    sluice demo
    Run it beside a cluster:   sluice serve --kubeconfig ~/.kube/config
    Give it queues:            sluice apply -f queues.yaml
    """


@click.command()
def version() -> None:
    """Print the version, the schema of the database that it works with, and Python's version.

    \b
    Example:
      sluice version
    """
    from admission.store.database.tables import SCHEMA_VERSION

    click.echo(f"sluice {installed_version('sluice')}, schema {SCHEMA_VERSION}, Python {python_version()}")


if __name__ == "__main__":
    main()
