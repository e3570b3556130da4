"""The exit code of every command: success, refusal, not found, usage error, and unreachable server."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from command_runner import Sluice
from test_cli_connection import kubeconfig
from test_cli_examples import COMMANDS, QUEUES, world
from test_cli_kinds import FORM

NOWHERE = "http://127.0.0.1:1"
DATABASE = "--database-url=postgresql://sluice@127.0.0.1:1/sluice"
PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
LEAVES = {name for name, command in COMMANDS.items() if not isinstance(command, click.Group)} | {"sluice import"}

__all__ = ["world"]

DONE = {
    "get": "get cq,wl -A",
    "describe": "describe cq/team-a",
    "why": "why train -n team-a",
    "position": "position train -n team-a",
    "top queues": "top queues",
    "top users": "top users",
    "top clusters": "top clusters",
    "tree": "tree research",
    "history": "history cq/team-a",
    "report usage": "report usage",
    "report idle": "report idle",
    "report node": "report node node-1",
    "report objectives": "report objectives",
    "report fairness": "report fairness",
    "report cost": "report cost -o json",
    "export": "export --as sluice",
    "apply": "apply -f queues.yaml",
    "create clusterqueue": "create cq new",
    "create cohort": "create cohort new",
    "create flavor": "create flavor new",
    "create localqueue": "create lq new --clusterqueue team-a -n team-a",
    "create priorityclass": "create wpc new --value 1",
    "edit": "edit cq/team-a",
    "stop": "stop cq/team-a",
    "resume": "resume cq/team-a",
    "diff": "diff -f queues.yaml",
    "rollback": "rollback cq/team-a",
    "hold": "hold train -n team-a",
    "release": "release train -n team-a",
    "move": "move train --to express -n team-a",
    "prioritize": "prioritize train --before other-job -n team-a",
    "delete": "delete cq/new",
    "reserve": "reserve r --clusterqueue team-a --quota default:cpu=1 --start 2030-12-01T08:00 --end 2030-12-01T09:00",
    "calendar show": "calendar show cq/team-a",
    "calendar add": "calendar add cq/team-a x --start 2026-12-01T20:00 --end 2026-12-02T06:00 "
    "--nominal-quota default:cpu=5",
    "calendar remove": "calendar remove cq/team-a x",
    "budget request": "budget request ml 20 --resource nvidia.com/gpu --reason deadline -n team-a",
    "budget grant": "budget grant ml 20 --resource nvidia.com/gpu --reason deadline",
    "debug bundle": "debug bundle --file bundle.tar.gz",
    "migrate": "migrate --database-url sqlite:///new.db",
    "simulate": "simulate queues.yaml",
    "kinds check": "kinds check form.yaml",
    "config example": "config example",
    "config show": "config show",
    "config check": "config check settings.yaml",
    "completion": "completion bash",
    "version": "version",
}
"""A successful call of each command, in an order that works with the objects of the fixture `world`."""

QUOTA_SYSTEMS = {
    f"import {name}" for name in ("volcano", "yunikorn", "koordinator", "scheduler-plugins", "kai", "mcad")
}
ELSEWHERE = QUOTA_SYSTEMS | {
    *("serve", "webhook", "sandbox", "demo", "submit", "logs", "cancel", "audit", "whatif", "uninstall", "kinds rbac"),
    *("gate off", "gate on", "gate status", "drain node", "drain flavor", "cluster join", "cluster leave"),
    *("import", "import kueue"),
}
"""Commands that need a cluster, or do not end: tests of their own call them successfully."""

REFUSED = {
    "apply": ("apply -f cycle.yaml", "closes a cycle"),
    "create cohort": ("create cohort research", "exists already"),
    "create clusterqueue": ("create cq team-a", "exists already"),
    "create flavor": ("create flavor default", "exists already"),
    "create localqueue": ("create lq main -c team-a -n team-a", "exists already"),
    "create priorityclass": ("create wpc new --value 1", "exists already"),
    "delete": ("delete cq/team-a", "is in use by"),
    "rollback": ("rollback cq/team-a --to-revision 99999", "has no revision 99999"),
    "move": ("move train --to nowhere -n team-a", "nowhere"),
    "prioritize": ("prioritize train --before runs -n team-a", "does not wait in the same ClusterQueue"),
    "kinds check": ("kinds check queues.yaml", "queues.yaml"),
    "config check": ("config check queues.yaml", "queues.yaml"),
    "config show": ("config show --config queues.yaml", "queues.yaml"),
    "serve": ("serve --config queues.yaml", "queues.yaml"),
    "report usage": ("report usage --by nonsense", "nonsense"),
    "migrate": ("migrate --database-url mysql://x/y", "mysql"),
    "import": ("import queues.yaml --database-url sqlite:///new.db", "is no export of Sluice's"),
    "export": (f"export backup.gz --database-url sqlite:///{'{none}'}.db", "none.db"),
}
"""Calls that the API, a cluster, a database or invalid settings refuse, with part of the message."""

NOT_FOUND = {
    "get": "get cq/nowhere",
    "describe": "describe cq/nowhere",
    "why": "why nowhere",
    "position": "position nowhere",
    "tree": "tree nowhere",
    "history": "history cq/nowhere",
    "edit": "edit cq/nowhere",
    "delete": "delete cq/nowhere",
    "rollback": "rollback cq/nowhere",
    "stop": "stop cq/nowhere",
    "resume": "resume cq/nowhere",
    "hold": "hold nowhere",
    "release": "release nowhere",
    "move": "move nowhere --to main",
    "prioritize": "prioritize nowhere --top",
}

UNREACHABLE = DONE | {
    "apply": "apply -f queues.yaml --wait 0",
    "submit": "submit -q main --image x",
    "logs": "logs train",
    "cancel": "cancel train",
    "gate off": "gate off",
    "gate on": "gate on",
    "gate status": "gate status",
    "uninstall": "uninstall",
    "audit": "audit",
    "whatif": "whatif",
    "import": f"import backup.gz {DATABASE}",
    "export": f"export backup.gz {DATABASE}",
    "migrate": f"migrate {DATABASE}",
    "import kueue": "import kueue",
    "drain node": "drain node n17",
    "drain flavor": "drain flavor a100",
    "cluster join": "cluster join b --kubeconfig config --directory .",
    "cluster leave": "cluster leave b --directory .",
}
OFFLINE = {
    *("serve", "webhook", "sandbox", "demo", "simulate", "completion", "version", "kinds check", "kinds rbac"),
    *("config example", "config show", "config check"),
    *QUOTA_SYSTEMS,
}
"""Commands that send no request, wait for their server, or read files first."""


def full_name(name: str) -> str:
    return f"sluice {name}"


def test_every_command_is_in_each_table_or_in_its_exceptions():
    assert {full_name(name) for name in (*DONE, *ELSEWHERE)} == LEAVES
    assert {full_name(name) for name in (*UNREACHABLE, *OFFLINE)} == LEAVES


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDITOR", "true")
    cycle = "{apiVersion: sluice.dev/v1, kind: Cohort, metadata: {name: research}, spec: {parentName: inner}}"
    (tmp_path / "queues.yaml").write_text(QUEUES)
    (tmp_path / "cycle.yaml").write_text(cycle)
    (tmp_path / "form.yaml").write_text(FORM)
    (tmp_path / "settings.yaml").write_text("logLevel: info\n")
    (tmp_path / "backup.gz").write_bytes(b"")


@pytest.mark.costly
async def test_exit_code_is_0_on_success_and_1_if_refused_or_not_found(sluice, world, files):
    for line in DONE.values():
        done = await sluice(*line.split())
        assert "1 settings" not in done.stdout
        expected = {0, 1} if line.startswith("diff") else {0}
        assert done.exit_code in expected, (line, done.stderr)
        assert "error" not in done.stderr, line
    await sluice("create", "cohort", "inner", "--parent", "research")
    for line, says in REFUSED.values():
        done = await sluice(*line.format(none="none").split())
        assert (done.exit_code, done.stderr.startswith("error: "), says in done.stderr) == (1, True, True), (
            line,
            done.stderr,
        )
    for line in NOT_FOUND.values():
        done = await sluice(*line.split())
        assert (done.exit_code, done.stdout) == (1, ""), line
        assert re.search("not found|does not exist|has no ", done.stderr), (line, done.stderr)


@pytest.fixture
def unreachable(tmp_path):
    """Runner of commands for which neither Sluice nor a cluster can be reached."""
    cluster = str(kubeconfig(tmp_path / "config", NOWHERE, token="t"))
    return Sluice({"SLUICE_SERVER": NOWHERE, "SLUICE_TOKEN": "t", "KUBECONFIG": cluster})


def test_usage_error_exits_with_2_without_any_request(unreachable, files):
    for name, command in COMMANDS.items():
        words = name.split()[1:]
        wrong = [[*words, "nonsense"]] if isinstance(command, click.Group) and name != "sluice import" else []
        for arguments in ([*words, "--no-such-flag"], *wrong):
            done = unreachable.run(*arguments)
            assert (done.exit_code, done.stdout) == (2, ""), (arguments, done.stderr)
            assert "No such option" in done.stderr or "unknown " in done.stderr, (arguments, done.stderr)
    for line in ("apply -f nowhere.yaml", "diff -f nowhere.yaml", "delete -f nowhere.yaml", "simulate nowhere.yaml",
                 "submit -q main -f nowhere.yaml", "create cq a --nominal-quota x:cpu=lots", "stop rf/default",
                 "submit -q main --image x --memory 1gb", "history cq/"):  # fmt: skip
        done = unreachable.run(*line.split())
        assert (done.exit_code, done.stdout) == (2, ""), (line, done.stderr)


def test_unreachable_server_exits_with_1_and_diff_with_2(unreachable, files):
    for name, line in UNREACHABLE.items():
        if name in OFFLINE:
            continue
        done = unreachable.run(*line.split())
        assert done.exit_code == (2 if name == "diff" else 1), (line, done.stderr)
        assert re.search("error: .*(cannot be reached|no connection|refused)", done.stderr), (line, done.stderr)


SECTION = PAGE.read_text().partition("## Exit codes")[2]
NAMED = {
    full_name(name).partition(" --")[0]
    for row in re.findall(r"^\| (`.*?) \|", SECTION, re.MULTILINE)
    for name in re.findall("`(.*?)`", row)
}
"""Commands in the table of exceptions on the page."""


def test_documentation_lists_codes_0_to_2_and_only_existing_commands():
    assert re.findall(r"^\| (\d+) \|", SECTION, re.MULTILINE) == ["0", "1", "2"]
    assert NAMED <= LEAVES
