"""The demo's account of a run: broken promises, usage, waiting times, progress output and the closing table."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from admission.cli.demo.account import Phase, SceneAccount
from admission.cli.demo.closing import Costs, close
from admission.cli.demo.gangs import UNTIL_DELETED
from admission.cli.demo.plan import PlannedJob, ScenePlan, job_document, three_teams
from admission.cli.demo.scenes import fair_share, of_kinds
from admission.cli.demo.terminal import Terminal

COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 10}
FAILED = {"conditions": [{"type": "FailureTarget", "status": "True"}, {"type": "Failed", "status": "True"}]}


class Run:
    """Jobs of a small plan, as the API server would show them to the account."""

    def __init__(self, jobs: int = 20, nodes: int = 10, *, plan: ScenePlan | None = None) -> None:
        self.plan = plan or three_teams(jobs=jobs, nodes=nodes)
        self.account = SceneAccount(self.plan)

    def show(
        self,
        job: PlannedJob,
        *,
        suspend: bool = False,
        status: dict[str, Any] | None = None,
        selector: dict[str, str] | None = None,
    ) -> None:
        document = job_document(self.plan, job)
        document["spec"]["suspend"] = suspend
        if selector is not None:
            document["spec"]["template"]["spec"]["nodeSelector"] = selector
        self.account.job(f"{job.team}/{job.name}", document | {"status": status or {}})

    def complete(self, *jobs: PlannedJob) -> None:
        """Show jobs that run with all their pods, and complete."""
        for job in jobs:
            self.pods(job)
            self.pods(job, phase="Succeeded")
            self.show(job, status=COMPLETE)

    def jobs_of(self, team: str) -> list[PlannedJob]:
        return [job for job in self.plan.jobs if job.team == team]

    def pods(self, job: PlannedJob, count: int = 10, *, phase: str = "Running") -> None:
        spec = job_document(self.plan, job)["spec"]["template"]["spec"] | {"nodeName": "kwok-node-0"}
        for number in range(count):
            labels = {"batch.kubernetes.io/job-name": job.name}
            metadata = {"namespace": job.team, "labels": labels, "uid": f"{job.name}-{number}"}
            pod = {"metadata": metadata, "spec": spec, "status": {"phase": phase}}
            self.account.pod(f"{job.team}/{job.name}-{number}", pod)

    def closing(self) -> dict[str, bool]:
        return {sentence: kept for kept, sentence in close(self.account, Costs({"PATCH": 20}, 3), 60.0).promises}


# ---------------------------------------------------------------------- the account


def test_run_without_errors_keeps_all_promises() -> None:
    run = Run()
    for job in run.plan.jobs:
        run.show(job, suspend=True)
        run.show(job)
        run.complete(job)
    assert run.account.finished()
    assert all(run.closing().values()), run.closing()
    assert "all 20 Jobs ran" in run.closing()


def test_pods_above_the_total_quota_are_reported() -> None:
    run = Run()
    for job in [*run.jobs_of("platform")[:3], *run.jobs_of("research")[:2]]:
        run.pods(job)
    assert run.account.live.broken == 0
    run.pods(run.jobs_of("students")[0], 1)
    assert run.account.live.broken == 1
    assert run.account.live.violations == [
        "all teams: pods request 102 cpu, at most 100 allowed, 0.0 s after the start",
        "all teams: pods request 102Gi memory, at most 100Gi allowed, 0.0 s after the start",
    ]
    assert [kept for sentence, kept in run.closing().items() if "quota was exceeded" in sentence] == [False]


def test_quota_of_ended_pods_may_be_used_by_another_job() -> None:
    run = Run()
    ending, other = run.jobs_of("research")[:5], run.jobs_of("research")[5]
    for job in ending:
        run.show(job)
        run.pods(job)
        run.pods(job, 2, phase="Succeeded")
        run.show(job, status={"active": 8, "succeeded": 2})
    assert run.account.used("cpu") == 80_000
    run.show(other)
    run.pods(other)
    assert run.account.used("cpu") == 100_000
    assert run.account.live.broken == 0


def test_suspended_job_counts_as_running_until_its_last_pod_is_gone() -> None:
    run = Run()
    job = run.jobs_of("research")[0]
    for status in ({"active": 10}, {"terminating": 1}):
        run.show(job, suspend=True, status=status)
        assert run.account.used("cpu") == 20_000
    run.show(job, suspend=True, status={"active": 0, "terminating": 0})
    assert run.account.used("cpu") == 0
    assert run.account.count(Phase.WAITING) == 1


def test_complete_failed_or_deleted_job_releases_its_quota() -> None:
    run = Run()
    one, other, gone = run.jobs_of("research")[:3]
    for job in (one, other, gone):
        run.show(job)
    assert run.account.used("cpu") == 60_000
    run.show(one, status=COMPLETE)
    run.show(other, status=FAILED)
    run.account.job(f"research/{gone.name}", None)
    assert run.account.used("cpu") == 0
    assert (run.account.count(Phase.DONE), run.account.count(Phase.FAILED)) == (1, 1)


def test_jobs_of_other_namespaces_are_not_counted() -> None:
    run = Run()
    document = job_document(run.plan, run.plan.jobs[0])
    document["metadata"]["namespace"] = "default"
    run.account.job("default/x", document)
    assert sum(run.account.count(phase) for phase in Phase) == 0


def test_job_started_twice_breaks_a_promise() -> None:
    run = Run()
    for job in run.plan.jobs:
        run.show(job)
        run.complete(job)
    twice = run.plan.jobs[3]
    run.show(twice, suspend=True)
    run.show(twice)
    run.show(twice, status=COMPLETE)
    broken = [sentence for sentence, kept in run.closing().items() if not kept]
    assert len(broken) == 1
    assert f"{twice.team}/{twice.name} was started 2 times with 10 pods" in broken[0]


@pytest.mark.parametrize("restored", [True, False])
def test_evicted_job_not_restored_as_written_breaks_a_promise(restored: bool) -> None:
    run = Run(plan=fair_share())
    evicted, *others = run.plan.jobs
    run.show(evicted, suspend=True)
    run.show(evicted, selector={"type": "kwok"})
    run.show(evicted, suspend=True, selector={"type": "kwok"})
    if restored:
        run.show(evicted, suspend=True)
    run.show(evicted, selector={"type": "kwok"})
    run.complete(evicted, *others)
    assert run.closing() == {
        "all 150 Jobs ran": True,
        "1 Jobs were evicted (1 evictions), requeued and ran later": True,
        **(
            {"each evicted Job was restored exactly as its user wrote it": True}
            if restored
            else {"1 Jobs were not restored as their users wrote them: research/research-00": False}
        ),
        "quota was never exceeded (1500 checks of the pods in the API server)": True,
    }


def test_object_that_did_not_start_with_all_its_pods_breaks_a_promise() -> None:
    run = Run(plan=of_kinds())
    for job in run.plan.jobs:
        key = f"{job.team}/{job.name}"
        label = "batch.kubernetes.io/job-name" if job.kind == "Job" else "demo.sluice.dev/workload"
        document = job_document(run.plan, job)
        if job.kind == "Job":
            run.account.job(key, document | {"status": COMPLETE})
        run.account.submitted(key)
        pods: list[dict[str, Any]] = [
            {
                "metadata": {"namespace": job.team, "labels": {label: job.name}, "uid": f"{job.name}-{number}"},
                "spec": {**document["spec"]["template"]["spec"], "schedulingGates": [{"name": "sluice.dev/admission"}]},
                "status": {"phase": "Pending"},
            }
            for number in range(job.pods)
        ]
        for pod in pods:
            run.account.pod(f"{job.team}/{pod['metadata']['uid']}", pod)
        assert run.account.live.alive[job.team]["cpu"] == 0  # gated pods hold no quota
        in_parts = job.name == "statefulsets-03"
        for pod in pods:
            pod["spec"].pop("schedulingGates")
            run.account.pod(f"{job.team}/{pod['metadata']['uid']}", pod)
            if in_parts:
                run.account.pod(f"{job.team}/{pod['metadata']['uid']}", None)
        if job.kind in UNTIL_DELETED:
            run.account.gangs.deleted(key)
        for pod in pods:
            pod["status"]["phase"] = "Succeeded"
            run.account.pod(f"{job.team}/{pod['metadata']['uid']}", None if job.kind in UNTIL_DELETED else pod)
    assert run.account.count(Phase.DONE) == 54
    assert run.closing()["1 objects did not start with all their pods: statefulsets/statefulsets-03"] is False


def test_pods_appearing_after_suspension_are_not_a_second_start() -> None:
    run = Run(plan=fair_share())
    job = run.plan.jobs[0]
    for suspend, active in ((True, 0), (False, 0), (True, 0), (True, 10), (True, 0)):
        run.show(job, suspend=suspend, status={"active": active})
    (seen,) = run.account.jobs.values()
    assert (seen.starts, run.account.evictions, run.account.altered) == (1, 1, [])


@pytest.mark.parametrize(
    ("plan", "completed", "broken"),
    [
        (fair_share(), 150, "no Job was evicted, so eviction was not shown"),
        (three_teams(jobs=20, nodes=10), 20, "no pod was observed, so quota was never checked"),
        (three_teams(jobs=2, nodes=10), 1, "only 1 of 2 Jobs ran to completion (0 waiting, 0 running, 0 failed)"),
    ],
)
def test_run_that_shows_too_little_breaks_a_promise(plan: ScenePlan, completed: int, broken: str) -> None:
    run = Run(plan=plan)
    for job in run.plan.jobs[:completed]:
        run.show(job, status=COMPLETE)
    assert run.account.finished() is (completed == len(run.plan.jobs))
    assert run.closing()[broken] is False


def test_utilisation_counts_only_quota_that_waiting_jobs_could_use() -> None:
    run = Run()
    account = run.account
    jobs = run.jobs_of("research")
    run.show(jobs[0])
    account.advance(10.0)
    assert account.utilisation("cpu") == 0.0  # no Job waited
    for job in jobs[1:]:
        run.show(job, suspend=True)
    account.advance(20.0)
    assert account.utilisation("cpu") == pytest.approx(20 / 100)  # all 100 CPUs were available to waiting Jobs
    for job in jobs[1:5]:
        run.show(job)
    account.advance(30.0)
    assert account.utilisation("cpu") == pytest.approx((20 + 100) / 200)
    assert account.teams["research"].utilisation("cpu") == pytest.approx((20 + 100) / (2 * 40))


def test_utilisation_ignores_quota_above_the_borrowing_limit() -> None:
    run = Run()
    for index, job in enumerate(run.jobs_of("platform")):
        run.show(job, suspend=index >= 3)  # three run: the quota of 40 and the 20 that the team may borrow
    run.account.advance(10.0)
    assert run.account.utilisation("cpu") == pytest.approx(1.0)


def test_waits_are_counted_from_creation_to_the_first_start() -> None:
    run = Run(jobs=400)
    jobs = run.jobs_of("research")[:100]
    for job in jobs:
        run.show(job, suspend=True)
    for second, job in enumerate(jobs, start=1):
        run.account.advance(float(second))
        run.show(job)
        run.show(job, suspend=True)  # evicted: a later start does not count
    team = run.account.teams["research"]
    assert team.wait_mean() == pytest.approx(50.5)
    assert team.wait_p99() == 99.0


# ---------------------------------------------------------------------- the terminal


def account_of_a_running_demo() -> SceneAccount:
    run = Run()
    for job in run.plan.jobs:
        run.show(job, suspend=True)
    for job in (*run.jobs_of("students")[:2], run.jobs_of("platform")[0]):
        run.show(job)
        run.pods(job)
    return run.account


def test_output_without_a_terminal_is_one_plain_line_every_5_seconds() -> None:
    out = io.StringIO()
    terminal = Terminal(out, interactive=False, colour=False)
    for second in range(7):
        terminal.draw(account_of_a_running_demo(), float(second))
    assert out.getvalue().splitlines() == [
        f"   {second} s  17 waiting, 3 running, 0 done; CPU 60/100 (platform 20/40, students 40/20, research 0/40)"
        for second in (0, 5)
    ]
    with terminal:  # for another scene
        terminal.draw(account_of_a_running_demo(), 0.0)
    assert len(out.getvalue().splitlines()) == 3


def test_terminal_output_is_redrawn_in_place_and_shows_borrowing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()
    with Terminal(out, interactive=True, colour=False) as terminal:
        terminal.draw(account_of_a_running_demo(), 1.0)
        first = out.getvalue()
        terminal.draw(account_of_a_running_demo(), 2.0)
        terminal.tell("Something happens.")
    (students,) = (line for line in first.splitlines() if "students" in line)
    assert "students ████████▓▓▓▓▓▓▓▓········" in students
    assert students.endswith("40 of 20 CPU, 20 borrowed")
    second = out.getvalue().removeprefix(first)
    assert second.startswith(f"\x1b[{first.count(chr(10))}A")
    assert second.endswith(f"\x1b[{first.count(chr(10))}A\x1b[JSomething happens.\n\x1b[?25h")


def test_closing_table_names_broken_promises() -> None:
    out = io.StringIO()
    terminal = Terminal(out, interactive=False, colour=False)
    terminal.close(close(account_of_a_running_demo(), Costs({"PATCH": 20, "POST": 20}, 3, 5), 60.0))
    text = out.getvalue()
    assert re.search(r"^Team +CPU quota +Jobs done +Mean wait +p99 wait +CPU used$", text, re.MULTILINE)
    assert re.search(r"^students +20 +0 +0m 00s \(0\.0 s\)", text, re.MULTILINE)
    assert "API writes by Sluice" in text
    assert "2.00 per Job (20 PATCH, 20 POST with 5 Events to come)" in text
    assert "0.150 per Job (3 in total)" in text
    assert "✗ BROKEN: only 0 of 20 Jobs ran" in text
    assert "✓ quota was never exceeded" in text


def test_recreated_pods_count_as_a_start_and_pods_ungated_late_do_not() -> None:
    run = Run(plan=of_kinds())
    job = next(job for job in run.plan.jobs if job.kind == "VolcanoJob")
    key, spec = f"{job.team}/{job.name}", job_document(run.plan, job)["spec"]["template"]["spec"]
    run.account.submitted(key)

    def see(number: int, phase: str | None) -> None:
        metadata = {"namespace": job.team, "labels": {"demo.sluice.dev/workload": job.name}, "uid": f"{number}"}
        pod = {"metadata": metadata, "spec": spec, "status": {"phase": phase}}
        run.account.pod(f"{job.team}/{number}", None if phase is None else pod)

    see(0, "Running")
    see(0, "Succeeded")
    see(1, "Running")  # a pod of the same start that was gated for longer
    assert (run.account.jobs[key].starts, run.account.evictions) == (1, 0)
    see(1, None)
    assert (run.account.jobs[key].starts, run.account.evictions) == (1, 1)
    for number in range(job.pods):
        see(number, "Running")
    for number in range(job.pods):
        see(number, "Succeeded")
    assert (run.account.jobs[key].starts, run.account.jobs[key].phase) == (2, Phase.DONE)
