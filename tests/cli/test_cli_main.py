"""The command as a process: its imports, help, version, exit codes and error messages."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from importlib.metadata import version

import click
import pytest
from command_runner import Sluice

from admission.cli.main import main
from admission.model.errors import SluiceError
from admission.store.database.tables import SCHEMA_VERSION
from tests import sluice_server

COMMANDS = main.list_commands(click.Context(main))
HEAVY = {"aiohttp", "alembic", "cryptography", "kubernetes_asyncio", "pydantic", "sqlalchemy"}


def run(*arguments: str | bytes, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command by the interpreter, or with the environment `warm_sluice` forked from its server."""
    command = [str(sluice_server.COMMAND)] if environment else [sys.executable, "-m", "admission.cli.main"]
    return subprocess.run(
        [*command, *arguments],
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_help_lists_all_commands_without_importing_heavy_libraries():
    code = (
        "import sys, json; from admission.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as end: print(json.dumps([end.code, sorted(sys.modules)]), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    exit_code, modules = json.loads(done.stderr)
    assert exit_code == 0
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)
    assert not HEAVY & set(modules)
    assert not [name for name in modules if name.startswith("admission.cli.commands.")]


@pytest.mark.costly
@pytest.mark.parametrize(
    ("line", "unneeded"),
    [
        ("get workloads", HEAVY - {"aiohttp"}),
        ("top queues", HEAVY - {"aiohttp"}),
        ("why train", HEAVY - {"aiohttp"}),
        ("history train", HEAVY - {"aiohttp"}),
        ("report usage", HEAVY - {"aiohttp"}),
        ("submit --queue q --image i --name n --dry-run -- true", {"alembic", "pydantic", "sqlalchemy"}),
    ],
)
def test_commands_of_users_import_neither_models_nor_the_server(line, unneeded):
    """Until they connect, for which the CA is missing."""
    code = (
        "import sys, json; from admission.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: print(json.dumps(sorted(sys.modules)))"
    )
    connection = {"SLUICE_SERVER": "https://sluice.invalid", "SLUICE_CA": "/missing", "SLUICE_CONFIG": ""}
    command = [sys.executable, "-c", code, *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True, env=os.environ | connection)
    modules = json.loads(done.stdout.splitlines()[-1])
    assert not (unneeded | {"admission.engine", "admission.store", "admission.model.queues"}) & set(modules), (
        done.stderr
    )


def test_completion_of_types_imports_no_models():
    code = (
        "import sys; from admission.cli.main import main\n"
        "try: main(prog_name='sluice')\n"
        "except SystemExit: print(*sorted(sys.modules), file=sys.stderr)"
    )
    words = {"_SLUICE_COMPLETE": "bash_complete", "COMP_WORDS": "sluice get clu", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=240, check=True, env=os.environ | words,
    )  # fmt: skip
    assert "plain,clusterqueue" in done.stdout
    assert not HEAVY & set(done.stderr.split())


def test_help_has_each_command_once_and_in_a_section(sluice_offline):
    lines = sluice_offline.run("--help").stdout.splitlines()
    sections = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert sections == ["Options:", "Jobs:", "Queues and quota:", "Running Sluice:", "Trying it, and others:"]
    words = [line.split()[0] for line in lines if line.startswith("  ") and line.strip()]
    assert [name for name in COMMANDS if words.count(name) != 1] == []


@pytest.mark.parametrize("line", [["why"], ["report", "usage"]])
def test_help_of_a_command_is_shown_by_help_too(sluice_offline, line):
    assert sluice_offline.run("help", *line).stdout == sluice_offline.run(*line, "--help").stdout
    assert " options.\n" in sluice_offline.run("help", *line).stdout


def test_options_lists_those_of_the_connection(sluice_offline):
    done = sluice_offline.run("options")
    assert done.exit_code == 0
    for option in ("--server URL", "--token-file FILE", "--ca FILE", "--kubeconfig FILE", "--context NAME"):
        assert option in done.stdout
    assert "--kubeconfig" not in sluice_offline.run("get", "--help").stdout


@pytest.mark.parametrize("line", [["get", "wl"], ["report", "usage"]])
def test_options_may_be_before_the_command(sluice_offline, line):
    before = sluice_offline.run("-n", "team-a", "--token-file=/nonexistent", "--server", "http://127.0.0.1:1", *line)
    assert before.exit_code == 1
    assert "the token file /nonexistent cannot be read" in before.stderr


@pytest.mark.parametrize("name", ["hold", "release", "activate", "deactivate", "stop", "resume", "cancel", "gate"])
def test_help_of_each_way_to_pause_names_all_of_them(sluice_offline, name):
    text = sluice_offline.run(name, "--help").stdout
    assert all(f"\n    {ways}" in text for ways in ("hold, ", "cancel ", "stop, ", "gate off"))


@pytest.mark.costly
def test_version_option_and_command_print_the_versions():
    short, long = run("--version"), run("version")
    assert (short.returncode, short.stdout) == (0, f"sluice {version('sluice')}\n")
    assert (long.returncode, long.stdout) == (
        0,
        f"sluice {version('sluice')}, schema {SCHEMA_VERSION}, Python {platform.python_version()}\n",
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_has_an_example_and_fits_88_columns(sluice_offline, name):
    done = sluice_offline.run(name, "--help")
    assert done.exit_code == 0, done.output
    assert "Example" in done.stdout
    assert f"sluice {name}" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 88


GROUPS = [name for name in COMMANDS if isinstance(main.get_command(click.Context(main), name), click.Group)]


@pytest.mark.parametrize("name", GROUPS)
def test_help_of_each_subcommand_has_an_example_and_text_of_88_columns(sluice_offline, name):
    """A command line in an example may be longer: it has to stay in one line to be copied."""
    group = main.get_command(click.Context(main), name)
    assert isinstance(group, click.Group)
    names = group.list_commands(click.Context(group))
    inner_names = [each for each in names if not group.get_command(click.Context(group), each).hidden]
    assert inner_names
    for inner in inner_names:
        done = sluice_offline.run(name, inner, "--help")
        assert done.exit_code == 0, done.output
        text, examples = re.split(r"\n  Examples?:\n", done.stdout)
        assert f"    sluice {name} {inner}" in examples
        assert max(map(len, text.splitlines())) <= 88
        assert max(len(line) for line in examples.splitlines() if f"sluice {name} " not in line) <= 88


@pytest.fixture
def sluice_offline():
    return Sluice()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nothing"], 2, 'unknown command "nothing"; see '),
        (["gett", "cq"], 2, 'unknown command "gett"; did you mean "get"?'),
        (["Prioritise"], 2, 'unknown command "Prioritise"; did you mean "prioritize"?'),
        (["gate", "of"], 2, 'unknown command "of" for "gate"; did you mean "off"?'),
        (["gate", "nope"], 2, 'unknown command "nope" for "gate"; available commands: off, on, status'),
        (["import", "kueu"], 2, '"kueu" is neither a file nor a source; did you mean "kueue"?'),
        (["import", "Slurm"], 2, "there is no import from Slurm; docs/migrating-from-schedulers.md says how to set up"),
        (["squeue"], 2, 'unknown command "squeue"; use '),
        (["get", "jobs"], 2, "queued Jobs and pods are shown as workloads"),
        (["--colour"], 2, "No such option"),
        (["get"], 2, "Missing argument"),
        (["get", "cq", "--colour"], 2, "No such option"),
        (["get", "cq", "--server", "nowhere"], 1, "error: "),
        (["apply", "-f", "/nonexistent.yaml"], 2, "error: "),
        (["diff", "-f", "/nonexistent.yaml"], 2, "error: "),
    ],
)
def test_process_exit_code_and_message_for_wrong_arguments(monkeypatch, warm_sluice, arguments, code, says):
    monkeypatch.setenv("SLUICE_ADMIN_TOKEN", "t")
    done = run(*arguments, environment=warm_sluice)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [["get", "cq", b"\xff"], ["get", "lq", "-n", b"\xff"], ["create", "cohort", b"\xff"]]
)
def test_argument_that_is_not_utf8_is_refused(warm_sluice, arguments):
    done = run(*arguments, environment=warm_sluice)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].endswith(" is not UTF-8: '\\udcff'")


def test_each_line_of_an_error_message_has_the_error_prefix(sluice_offline, monkeypatch):
    @click.command()
    def version():
        raise SluiceError("one\ntwo")

    monkeypatch.setattr("admission.cli.main.version", version)
    done = sluice_offline.run("version")
    assert (done.exit_code, done.stderr) == (1, "error: one\nerror: two\n")
