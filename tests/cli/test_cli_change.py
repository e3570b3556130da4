"""`sluice diff`, `delete`, `edit`, `stop` and `resume`: their effects and output."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import yaml

from admission.model.names import LAST_APPLIED
from admission.store.audit_log import Author

FLAVOR = "{apiVersion: sluice.dev/v1, kind: ResourceFlavor, metadata: {name: default}}"
QUEUES = f"""
{FLAVOR}
---
{{apiVersion: sluice.dev/v1, kind: Cohort, metadata: {{name: all}}}}
---
{{apiVersion: sluice.dev/v1, kind: Cohort, metadata: {{name: research}}, spec: {{parentName: all}}}}
---
apiVersion: sluice.dev/v1
kind: ClusterQueue
metadata: {{name: team-a}}
spec:
  cohortName: research
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{{name: default, resources: [{{name: cpu, nominalQuota: "4"}}]}}]
---
apiVersion: sluice.dev/v1
kind: LocalQueue
metadata: {{name: main, namespace: team-a, labels: {{team: a}}}}
spec: {{clusterQueue: team-a}}
---
apiVersion: sluice.dev/v1
kind: LocalQueue
metadata: {{name: other, namespace: team-a}}
spec: {{clusterQueue: team-a}}
"""


@pytest.fixture
async def queues(sluice, tmp_path) -> Path:
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES)
    done = await sluice("apply", "-f", str(file))
    assert done.exit_code == 0, done.stderr
    return file


async def test_diff_shows_what_apply_would_change(sluice, queues):
    same = await sluice("diff", "-f", str(queues))
    assert (same.exit_code, same.output) == (0, "")
    queues.write_text(QUEUES.replace('"4"', '"5"') + "---\n" + FLAVOR.replace("default", "new"))
    other = await sluice("diff", "-f", str(queues))
    assert other.exit_code == 1
    assert "--- live/clusterqueue.sluice.dev/team-a\n+++ files/clusterqueue.sluice.dev/team-a\n" in other.stdout
    changed = [line for line in other.stdout.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert [line.split() for line in changed if "nominalQuota" in line] == [
        ["-", "nominalQuota:", "'4'"],
        ["+", "nominalQuota:", "'5'"],
    ]
    assert "+kind: ResourceFlavor" in changed


@pytest.mark.costly
async def test_diff_and_apply_ignore_the_last_applied_annotation_of_kubectl(sluice, queues, store):
    cohort = await store.queues.get("Cohort", "research")
    noted = cohort.metadata.model_copy(
        update={"annotations": {LAST_APPLIED: "{}", "team": "a"}, "resource_version": ""}
    )
    await store.queues.replace(cohort.model_copy(update={"metadata": noted}), author=Author("kubectl"))

    file = QUEUES.replace("name: research}", "name: research, annotations: {team: a}}")
    queues.write_text(file)
    same = await sluice("diff", "-f", str(queues))
    assert (same.exit_code, same.output) == (0, "")
    again = await sluice("apply", "-f", str(queues))
    assert "cohort.sluice.dev/research unchanged\n" in again.stdout

    queues.write_text(file.replace("team: a}", "team: b}"))
    other = await sluice("diff", "-f", str(queues))
    assert (other.exit_code, LAST_APPLIED in other.stdout) == (1, False)
    changed = await sluice("apply", "-f", str(queues))
    assert "cohort.sluice.dev/research configured\n" in changed.stdout
    left = (await store.queues.get("Cohort", "research")).metadata.annotations
    assert left == {LAST_APPLIED: "{}", "team": "b"}


async def test_diff_exits_with_2_if_the_server_is_unreachable(sluice, queues):
    done = await sluice("diff", "-f", str(queues), SLUICE_SERVER="http://127.0.0.1:1")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: http://127.0.0.1:1 cannot be reached")


@pytest.mark.costly
async def test_apply_dry_run_prints_outcomes_and_writes_nothing(sluice, queues):
    queues.write_text(QUEUES.replace('"4"', '"5"') + "---\n" + FLAVOR.replace("default", "new"))
    expected = {
        "resourceflavor.sluice.dev/default": "unchanged",
        "resourceflavor.sluice.dev/new": "created",
        "clusterqueue.sluice.dev/team-a": "configured",
    }
    for dry_run, words in (("client", "(dry run)"), ("server", "(server dry run)")):
        done = await sluice("apply", "-f", str(queues), f"--dry-run={dry_run}")
        assert done.exit_code == 0
        lines = done.stdout.splitlines()
        assert all(f"{name} {outcome} {words}" in lines for name, outcome in expected.items()), done.stdout
    assert (await sluice("get", "rf", "-o", "name")).stdout == "resourceflavor.sluice.dev/default\n"


async def test_server_side_apply_keeps_unmentioned_fields_and_refuses_conflicts(sluice, queues):
    fields = "{apiVersion: kueue.x-k8s.io/v1beta1, kind: Cohort, metadata: {name: research, labels: {a: b}}}"
    done = await sluice("apply", "-f", "-", "--server-side", stdin=fields)
    assert (done.exit_code, done.stdout) == (0, "cohort.sluice.dev/research serverside-applied\n")
    found = json.loads((await sluice("get", "co/research", "-o", "json")).stdout)
    assert (found["metadata"]["labels"], found["spec"]["parentName"]) == ({"a": "b"}, "all")
    taken = "{apiVersion: sluice.dev/v1, kind: Cohort, metadata: {name: research}, spec: {parentName: x}}"
    refused = await sluice("apply", "-f", "-", "--server-side", stdin=taken)
    assert refused.exit_code == 1
    assert "spec.parentName" in refused.stderr
    forced = await sluice("apply", "-f", "-", "--server-side", "--force-conflicts", stdin=taken)
    assert forced.exit_code == 0


async def test_delete_by_file_deletes_dependent_objects_first(sluice, queues):
    done = await sluice("delete", "-f", str(queues))
    assert done.exit_code == 0, done.stderr
    assert [line.split(".")[0] for line in done.stdout.splitlines()] == [
        "localqueue", "localqueue", "clusterqueue", "cohort", "cohort", "resourceflavor",
    ]  # fmt: skip
    assert (await sluice("get", "cq", "-o", "name")).stdout == ""


async def test_delete_by_label_all_and_several_types(sluice, queues):
    nothing_yet = await sluice("delete", "lq", "--all", "-n", "team-a", "--dry-run=client")
    assert nothing_yet.stdout.splitlines() == [
        "localqueue.sluice.dev/main deleted (dry run)",
        "localqueue.sluice.dev/other deleted (dry run)",
    ]
    labelled = await sluice("delete", "lq", "-l", "team=a", "-n", "team-a")
    assert labelled.stdout == "localqueue.sluice.dev/main deleted\n"
    rest = await sluice("delete", "lq/other", "cq/team-a", "-n", "team-a")
    assert rest.stdout == "localqueue.sluice.dev/other deleted\nclusterqueue.sluice.dev/team-a deleted\n"


@pytest.mark.parametrize(
    "arguments",
    [[], ["lq"], ["lq", "main", "--all"], ["lq", "-l", "a=b", "-f", "x"], ["lq/main", "other"], ["-l", "a=b"]],
)
async def test_delete_refuses_missing_or_contradictory_selections(sluice, arguments):
    done = await sluice("delete", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Error: " in done.stderr


@pytest.mark.costly
async def test_stop_and_resume_set_the_stop_policy(sluice, queues):
    async def policy(what: str) -> str:
        return (await sluice("get", what, "-n", "team-a", "-o", "jsonpath={.spec.stopPolicy}")).stdout

    assert (await sluice("stop", "cq/team-a")).stdout == "clusterqueue.sluice.dev/team-a stopped\n"
    assert await policy("cq/team-a") == "Hold"
    await sluice("stop", "localqueue", "main", "-n", "team-a", "--drain", "--reason", "maintenance")
    assert await policy("lq/main") == "HoldAndDrain"
    done = await sluice("resume", "cq/team-a", "lq/main", "-n", "team-a")
    assert done.stdout == "clusterqueue.sluice.dev/team-a resumed\nlocalqueue.sluice.dev/main resumed\n"
    assert (await policy("cq/team-a"), await policy("lq/main")) == ("None", "None")
    tried = await sluice("stop", "cq/team-a", "--dry-run")
    assert tried.stdout.startswith("clusterqueue.sluice.dev/team-a stopped (server dry run)\n")
    assert await policy("cq/team-a") == "None"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["stop", "cohort/x"], "a Cohort cannot be stopped"),
        (["stop", "wl/train"], "sluice hold train"),
        (["resume", "cq"], "no clusterqueues are named; use cq/NAME"),
        (["edit", "cq"], "exactly one object must be named; use cq/NAME"),
        (["edit", "wl/train"], "workloads cannot be edited; use `sluice hold`"),
        (["prioritize", "train"], "specify one of"),
        (["prioritize", "train", "--top", "--priority", "1"], "specify one of"),
        (["hold"], "Missing argument"),
        (["rollback", "wl/x"], "only queue objects have revisions"),
        (["apply", "-f", "-", "--force-conflicts"], "can only be used with --server-side"),
        (["get", "cq", "--server", "http://x", "--context", "y"], "cannot be used together with"),
    ],
)
async def test_unsupported_or_contradictory_arguments_are_refused(sluice, arguments, says):
    done = await sluice(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert says in done.stderr


@pytest.fixture
def editor(tmp_path):
    """Function that makes an editor: its n-th call runs the n-th sed script, and keeps the given file as seen.N."""

    def make(*scripts: str) -> dict[str, str]:
        program = tmp_path / "editor"
        lines = "".join(f"  {number}) sed -i -e '{script}' \"$1\" ;;\n" for number, script in enumerate(scripts))
        program.write_text(
            f'#!/bin/sh\ncount=$(ls {tmp_path}/seen.* 2>/dev/null | wc -l)\ncp "$1" {tmp_path}/seen.$count\n'
            f"case $count in\n{lines}esac\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IEXEC)
        return {"EDITOR": str(program), "VISUAL": ""}

    return make


async def test_edit_writes_the_changed_manifest(sluice, queues, editor):
    done = await sluice("edit", "cq/team-a", "--reason", "more", **editor("s/nominalQuota: .4./nominalQuota: 6/"))
    assert (done.exit_code, done.stdout) == (0, "clusterqueue.sluice.dev/team-a edited\n"), done.output
    quota = (await sluice("get", "cq/team-a", "-o", "jsonpath={..nominalQuota}")).stdout
    assert quota == "6"


async def test_edit_without_a_change_reports_unchanged_and_writes_nothing(sluice, queues, editor, store):
    before = await store.queues.revision(), (await store.audit.list()).records
    done = await sluice("edit", "cq/team-a", **editor())
    assert (done.exit_code, done.stdout) == (0, "clusterqueue.sluice.dev/team-a unchanged\n")
    assert (await store.queues.revision(), (await store.audit.list()).records) == before


async def test_edit_reopens_a_refused_manifest_with_the_error(sluice, queues, editor, tmp_path):
    scripts = ("s/nominalQuota: .*/nominalQuota: lots/", "s/lots/7/")
    done = await sluice("edit", "cq/team-a", **editor(*scripts))
    assert (done.exit_code, done.stdout) == (0, "clusterqueue.sluice.dev/team-a edited\n"), done.output
    shown = (tmp_path / "seen.1").read_text()
    assert '# error: ClusterQueue "team-a": spec.resourceGroups[0].flavors[0].resources[0].nominalQuota' in shown
    assert yaml.safe_load(shown)["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == "lots"


async def test_cancelled_edit_reports_why_the_manifest_was_refused(sluice, queues, editor):
    for script, says in (
        ("s/name: team-a/name: team-b/", "kind, name and namespace cannot be changed"),
        ('s/resourceVersion: .*/resourceVersion: "1"/', "Conflict|has changed|modified|resourceVersion"),
        ("1,$ s/^spec:/spec: [/", "line"),
    ):
        for seen in Path(editor()["EDITOR"]).parent.glob("seen.*"):
            seen.unlink()
        done = await sluice("edit", "cq/team-a", **editor(script))
        assert done.exit_code == 1
        assert done.stderr.startswith("error: edit cancelled, nothing was written: ")
        assert any(part in done.stderr for part in says.split("|")), done.stderr


async def test_edit_with_a_missing_editor_fails_without_a_traceback(sluice, queues):
    done = await sluice("edit", "cq/team-a", EDITOR="/nonexistent/editor", VISUAL="")
    assert done.exit_code == 1
    assert "Traceback" not in done.output


BUDGET = """
apiVersion: sluice.dev/v1
kind: Budget
metadata: {name: ml}
spec: {scope: {}, resources: [{name: cpu, hours: 100}], period: {every: Month}}
"""


async def requests(sluice) -> list[str]:
    """Ask for hours of the Budget twice, and return the names of the requests."""
    silent = await sluice("budget", "request", "ml", "96", "-n", "team-a")
    assert (silent.exit_code, "a request needs a reason" in silent.stderr) == (2, True)
    for reason in ("paper", "another paper"):
        args = ("96", "--day", "2026-12-24", "--reason", reason, "-n", "team-a")
        asked = await sluice("budget", "request", "ml", *args)
        assert asked.exit_code == 0, asked.stderr
    listed = json.loads((await sluice("get", "br", "-n", "team-a", "-o", "json")).stdout)["items"]
    assert {each["status"]["phase"] for each in listed} == {"Open"}
    return [each["metadata"]["name"] for each in sorted(listed, key=lambda each: each["spec"]["reason"] != "paper")]


async def test_grants_are_kept_in_the_budget_with_their_reasons_and_in_its_history(sluice, tmp_path):
    file = tmp_path / "budget.yaml"
    file.write_text(BUDGET)
    assert (await sluice("apply", "-f", str(file))).exit_code == 0
    listed = await sluice("budget")
    assert (listed.exit_code, listed.stdout) == (0, (await sluice("get", "budgets")).stdout)
    assert listed.stdout.splitlines()[1].startswith("ml ")
    refused = await sluice("budget", "grant", "ml", "20")
    assert (refused.exit_code, "a grant needs a reason" in refused.stderr) == (2, True)
    for hours, reason in (("20", "deadline"), ("-2.5", "paid twice")):
        granted = await sluice("budget", "grant", "ml", hours, "--day", "2026-11-28", "--reason", reason)
        assert granted.exit_code == 0, granted.stderr
    assert "-2.5 hours of cpu for the period of 2026-11-28" in granted.stdout
    await sluice("budget", "grant", "ml", "7", "--reason", "not really", "--dry-run")
    shown = json.loads((await sluice("get", "budget", "ml", "-o", "json")).stdout)
    assert shown["spec"]["grants"] == [
        {"day": "2026-11-28", "hours": "20", "resource": "cpu", "reason": "deadline"},
        {"day": "2026-11-28", "hours": "-2.5", "resource": "cpu", "reason": "paid twice"},
    ]
    history = await sluice("history", "budget/ml")
    assert "paid twice" in history.stdout
    wanted = shown["spec"]["grants"]
    names = await requests(sluice)
    for name, hours, said in zip(names, ("96", "0"), ("yes", "wait"), strict=True):
        answered = await sluice("budget", "grant", "ml", hours, "--request", f"team-a/{name}", "--reason", said)
        assert answered.exit_code == 0, answered.stderr
    states = json.loads((await sluice("get", "budgetrequests", "-n", "team-a", "-o", "json")).stdout)["items"]
    answers = {each["metadata"]["name"]: each["status"] for each in states}
    assert [answers[name]["phase"] for name in names] == ["Granted", "Declined"]
    assert answers[names[0]] == {"phase": "Granted", "hours": "96", "day": "2026-12-24", "reason": "yes"}
    shown["spec"]["grants"] = json.loads((await sluice("get", "budget", "ml", "-o", "json")).stdout)["spec"]["grants"]
    assert shown["spec"]["grants"][:2] == wanted
    assert (await sluice("diff", "-f", str(file))).exit_code == 0
    assert "unchanged" in (await sluice("apply", "-f", str(file), "--dry-run=client")).stdout
    file.write_text(BUDGET.replace("hours: 100", "hours: 90"))
    again = await sluice("apply", "-f", str(file))
    assert again.exit_code == 0, again.stderr
    spec = json.loads((await sluice("get", "budget", "ml", "-o", "json")).stdout)["spec"]
    assert (spec["resources"][0]["hours"], spec["grants"]) == ("90", shown["spec"]["grants"])
    grant = "grants: [{day: 2026-11-28, hours: 20, resource: cpu, reason: deadline}]"
    file.write_text(BUDGET.replace("{scope", f"{{{grant}, scope"))
    replaced = await sluice("apply", "-f", str(file))
    assert "loses its grant of -2.5 hours of cpu for the period of 2026-11-28 (paid twice)" in replaced.stderr
    assert "(deadline)" not in replaced.stderr
    rolled_back = await sluice("rollback", "budget/ml", "--reason", "mistake")
    assert rolled_back.exit_code == 0, rolled_back.stderr
    unknown = await sluice("budget", "grant", "ml", "1", "--resource", "gpu", "--reason", "x")
    assert (unknown.exit_code, '"gpu" is not among the resources' in unknown.stderr) == (1, True)
