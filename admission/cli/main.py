"""Entry point of the command line: the group `sluice`, whose subcommands are imported when they are called.

Importing all of them would take longer than most commands run.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
from importlib import import_module
from keyword import iskeyword
from platform import python_version
from typing import Any, NamedTuple

import click

from admission.cli.errors import CommandError
from admission.model.errors import SluiceError
from admission.model.text import visible


class _Command(NamedTuple):
    """A subcommand, described without importing it."""

    module: str
    """Its module, in which the command is an attribute of its name (with `_` behind a Python keyword)."""
    help: str
    """Its line in `sluice --help`."""


_COMMANDS = {
    "serve": _Command("admission.cli.serve.command", "Run the Sluice server: controller, webhooks and REST API."),
    "webhook": _Command("admission.cli.commands.webhook", "Run the admission webhook server alone."),
    "gate": _Command("admission.cli.commands.gate", "Turn the gating of Jobs off in an emergency, and on again."),
    "uninstall": _Command(
        "admission.cli.commands.uninstall", "Remove Sluice's objects and annotations from a cluster."
    ),
    "debug": _Command("admission.cli.commands.debug", "Collect information for troubleshooting."),
    "kinds": _Command("admission.cli.commands.kinds", "Validate custom kinds, and print the RBAC rules of kinds."),
    "config": _Command("admission.cli.commands.config", "Print, validate and inspect settings of `sluice serve`."),
    "migrate": _Command("admission.cli.commands.migrate", "Migrate the database schema."),
    "get": _Command("admission.cli.commands.get", "Display queue objects and workloads."),
    "describe": _Command("admission.cli.commands.describe", "Show details of queue objects or workloads."),
    "why": _Command("admission.cli.commands.why", "Explain why a Job is not running, and what would help."),
    "position": _Command("admission.cli.commands.why", "Show the position of a Job in its queue."),
    "top": _Command("admission.cli.commands.top", "Show quota usage by queue, user or cluster."),
    "tree": _Command("admission.cli.commands.tree", "Show Cohorts and ClusterQueues as a tree, with quota and usage."),
    "history": _Command("admission.cli.commands.history", "Show revisions of a queue object, or the history of a Job."),
    "apply": _Command("admission.cli.commands.apply", "Create or update queue objects from manifests."),
    "diff": _Command("admission.cli.commands.diff", "Show the changes that `sluice apply` would make."),
    "create": _Command("admission.cli.commands.create", "Create a queue object from flags."),
    "edit": _Command("admission.cli.commands.edit", "Edit a queue object in your editor."),
    "delete": _Command("admission.cli.commands.delete", "Delete queue objects."),
    "rollback": _Command("admission.cli.commands.history", "Roll back a queue object to an earlier revision."),
    "stop": _Command("admission.cli.commands.stop", "Stop admission in a ClusterQueue or LocalQueue."),
    "resume": _Command("admission.cli.commands.stop", "Resume admission in a ClusterQueue or LocalQueue."),
    "calendar": _Command("admission.cli.commands.calendar", "Show or change quotas that change by time."),
    "reserve": _Command("admission.cli.commands.reserve", "Keep quota for some workloads for a time."),
    "drain": _Command("admission.cli.commands.drain", "Keep workloads off nodes and flavors, for maintenance."),
    "budget": _Command("admission.cli.commands.budget", "List Budgets; grant hours to one, or take some away."),
    "hold": _Command("admission.cli.commands.workloads", "Put Jobs on hold; running ones are stopped."),
    "release": _Command("admission.cli.commands.workloads", "Release Jobs that are on hold or deactivated."),
    "move": _Command("admission.cli.commands.workloads", "Move Jobs to another LocalQueue."),
    "prioritize": _Command("admission.cli.commands.workloads", "Change a Job's priority or position in the queue."),
    "submit": _Command("admission.cli.commands.submit", "Create a Job in a queue, from flags or a manifest."),
    "logs": _Command("admission.cli.commands.logs", "Print the logs of a Job's pods."),
    "cancel": _Command("admission.cli.commands.cancel", "Cancel Jobs: delete them and their pods."),
    "cluster": _Command("admission.cli.commands.cluster", "Let a cluster join, or leave."),
    "audit": _Command("admission.cli.commands.audit", "Compare database and cluster, and repair differences."),
    "report": _Command("admission.cli.commands.report", "Report quota usage over time."),
    "export": _Command("admission.cli.commands.export", "Export the database, or queue objects as manifests."),
    "import": _Command("admission.cli.commands.import_", "Import an exported database, or queues of another system."),
    "whatif": _Command("admission.cli.commands.whatif", "Replay a past period under other quota."),
    "simulate": _Command("admission.cli.commands.simulate", "Simulate scheduling from files, without a cluster."),
    "sandbox": _Command("admission.cli.commands.sandbox", "Run a simulated Kubernetes cluster on this machine."),
    "demo": _Command("admission.cli.demo", "Run a demonstration in a sandbox."),
    "completion": _Command("admission.cli.commands.completion", "Print the shell completion script."),
    "version": _Command("admission.cli.main", "Print the version."),
}


_GROUPS = {
    "Jobs": (
        *("submit", "get", "describe", "why", "position", "logs", "history", "hold", "release", "cancel", "move"),
        "prioritize",
    ),
    "Queues and quota": (
        *("tree", "top", "create", "edit", "apply", "diff", "delete", "rollback", "stop", "resume", "import", "export"),
        *("report", "calendar", "reserve", "drain", "budget", "whatif", "simulate"),
    ),
    "Running Sluice": (
        *("serve", "webhook", "config", "kinds", "migrate", "cluster", "audit", "gate", "debug", "uninstall"),
    ),
    "Trying it, and others": ("demo", "sandbox", "completion", "version"),
}
"""Section of `sluice --help` -> its commands, each of which is in one section."""

_ALIASES = {"deactivate": "hold", "activate": "release"}
"""Other name of a command -> the command; not listed."""

_LEADING = ("-n", "--namespace", "--server", "--token-file", "--ca", "--kubeconfig", "--context")
"""Options with a value that may be written before the command, as with kubectl."""


_EQUIVALENTS = {
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
    "explain": "why",
    "queue": "get workloads",
    "status": "get workloads",
}
"""Command of Slurm, kueuectl or kubectl -> its equivalent of `sluice`, for the error about an unknown command."""


_OPTION_EQUIVALENTS = {"--ns": "--namespace", "--me": "--mine"}
"""Option of other tools -> the one of `sluice`, for the error about an unknown option."""

_WRITE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of writing the output to a file: disk or quota full, file too large, I/O error."""


class _LazyGroup(click.Group):
    """Click group that imports the called command only, and prints SluiceErrors as `error: MESSAGE`."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; an error of writing its output, also `--help`, ends it with a message and exit code."""
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if error.errno not in _WRITE_ERRNOS:
                raise  # click handles a closed pipe; any other one is a defect, which needs its traceback
            click.echo(f"error: the output cannot be written: {error.strerror}", err=True)
            # Python flushes stdout once more at exit; what is still buffered would fail again, with another exit code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Check the arguments' encoding, and prepare stdout. Raises UsageError for an argument that is not UTF-8."""
        for number, arg in enumerate(args, start=1):
            try:
                arg.encode()
            except UnicodeEncodeError as error:
                raise click.UsageError(f"argument {number} is not UTF-8: {arg!a}") from error
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Names may have characters that the encoding of the terminal does not have.
            sys.stdout.reconfigure(errors="backslashreplace")
        # Called by a link of this name it is a kubectl plugin; usage lines then say `kubectl sluice`.
        info_name = "kubectl sluice" if info_name == "kubectl-sluice" else info_name
        return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, with options of commands that are before the command."""
        leading: list[str] = []
        rest = [*args]
        while rest and rest[0].partition("=")[0] in _LEADING:
            taken = 1 if "=" in rest[0] else 2
            leading, rest = leading + rest[:taken], rest[taken:]
        if leading and rest:
            place = 2 if isinstance(self.get_command(ctx, rest[0]), click.Group) else 1
            args = [*rest[:place], *leading, *rest[place:]]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None: unknown. Raises UsageError if this installation does not contain it."""
        del ctx
        cmd_name = _ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in _COMMANDS:
            return None
        # Nearly all objects created by imports stay alive: collections would take a tenth of the time and free nothing.
        gc.set_threshold(100_000)
        module = _COMMANDS[cmd_name].module
        try:
            function = getattr(import_module(module), f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
            raise click.UsageError(f'"{cmd_name}" is not in this installation; the image is without it, too') from error
        assert isinstance(function, click.Command)
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as `__main__` has set it for the imports
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return function

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the called command. Raises UsageError for an unknown one, with its equivalent or a similar name."""
        if args[0] == "help" and not ctx.resilient_parsing:
            if len(args) == 1:
                click.echo(ctx.get_help())
                ctx.exit()
            args = [*args[1:], "--help"]
        if args[0] == "options" and not ctx.resilient_parsing:
            _print_options()
            ctx.exit()
        name = args[0]
        if name not in {**_COMMANDS, **_ALIASES} and not name.startswith("-") and not ctx.resilient_parsing:
            from admission.cli.arguments.groups import similar  # slow to import, and needed for a mistake only

            near = similar(name.lower(), _COMMANDS)
            hint = f'did you mean "{near}"?' if near else f"see {ctx.command_path} --help"
            if name.lower() in _EQUIVALENTS:
                hint = f"use {ctx.command_path} {_EQUIVALENTS[name.lower()]}"
            raise click.UsageError(f'unknown command "{name}"; {hint}', ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of `sluice --help` in sections, without importing them."""
        for title, names in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, _COMMANDS[name].help) for name in names])
        formatter.write_paragraph()
        formatter.write_text(f"{ctx.command_path} help COMMAND shows the options of a command.")
        formatter.write_text(f"{ctx.command_path} options shows those of the connection, which most commands have.")

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a SluiceError ends it with a message and exit code."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            meant = _OPTION_EQUIVALENTS.get(error.option_name)
            if meant is None or error.ctx is None or all(meant not in each.opts for each in error.ctx.command.params):
                raise
            raise click.NoSuchOption(
                error.option_name, f"{error.message} Did you mean '{meant}'?", ctx=error.ctx
            ) from error
        except SluiceError as error:
            for line in str(error).split("\n"):
                click.echo(f"error: {visible(line)}", err=True)
            ctx.exit(error.exit_code if isinstance(error, CommandError) else 1)


def _print_options() -> None:
    """Print the options of the connection, which the help of a command has in one line only."""
    from admission.cli.arguments.connection import connection_records

    formatter = click.HelpFormatter(max_width=88)
    with formatter.section("Options of all commands that connect to Sluice; also before the command"):
        formatter.write_dl(connection_records())
    click.echo(formatter.getvalue(), nl=False)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sluice", message="sluice %(version)s", help="Print the version.")
def main() -> None:
    """Sluice is a queue manager for Kubernetes batch jobs.

    \b
    Try it on this machine:  sluice demo
    Run it for a cluster:    sluice serve --kubeconfig ~/.kube/config
    Create queues:           sluice apply -f queues.yaml
    """


@click.command()
def version() -> None:
    """Print the versions of Sluice, of its database schema, and of Python.

    \b
    Example:
      sluice version
    """
    from importlib.metadata import version as installed_version

    from admission.store.database.tables import SCHEMA_VERSION

    click.echo(f"sluice {installed_version('sluice')}, schema {SCHEMA_VERSION}, Python {python_version()}")


if __name__ == "__main__":
    main()
