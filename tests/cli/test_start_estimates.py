"""Estimated starts: computed by the forecaster process, calibrated, and shown to users."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Self

import pytest

from admission.api.documents.representation import columns_of
from admission.api.resources.explanation_text import ExplainedWorkload, paragraphs
from admission.api.resources.start_estimates import StartEstimate
from admission.apimachinery.tables import table
from admission.engine import Explanation
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.simulate.calibration import MIN_SAMPLES, Calibration, ReportedRange
from admission.simulate.durations import Durations
from admission.store.database.migrations import migrate
from admission.store.records import Changes, Closed, Opened, State, WorkloadRecord
from admission.store.store import Store
from tests.queue_objects import cluster_queue, create_objects, flavor, local_queue

QUEUES = (flavor(), cluster_queue(cpu=2), local_queue(namespace="ns"))
HELD = Admission("cq", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 1000}, 1),))
RUN = 600.0


def job(name: str, created: float) -> Workload:
    return Workload(name, "ns", name, "lq", 0, created, (PodSet("main", 1, {"cpu": 1000}),))


def pending_record(name: str, at: float) -> WorkloadRecord:
    return WorkloadRecord(job(name, at), State.PENDING, queued_at=at)


def admit_changes(record: WorkloadRecord, at: float) -> Changes:
    started = replace(record, state=State.ADMITTED, cluster_queue="cq", admitted_at=at, cleared_at=at, admission=HELD)
    return Changes(workloads=(started,), opened=(Opened(record.workload, HELD, at),))


def finish_changes(record: WorkloadRecord, *, start: float, end: float) -> Changes:
    over = replace(
        record, state=State.FINISHED, cluster_queue="cq", admitted_at=start, cleared_at=start, finished_at=end,
        outcome="Succeeded",
    )  # fmt: skip
    return Changes(workloads=(over,), closed=(Closed(record.workload.uid, end, "Succeeded"),))


class Forecaster:
    """The forecaster process, with requests as `serve` sends them."""

    def __init__(self, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "admission.cli.serve.forecaster"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        policy = {"fair_sharing": None, "admission_fair_sharing": None, "resources": None}
        self._say({"databaseUrl": url, "policy": policy})

    def _say(self, document: object) -> None:
        self.process.stdin.write(json.dumps(document).encode() + b"\n")
        self.process.stdin.flush()

    def estimate(self, **limits: float) -> dict:
        self._say({"namespaces": {"ns": {}}, "limits": limits})
        return json.loads(self.process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        with self.process.stdout:
            assert self.process.wait(60) in (0, -signal.SIGKILL), "it ends with its input"


@pytest.mark.costly
async def test_estimates_are_given_after_some_were_compared_with_actual_starts(tmp_path):
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    await migrate(url)
    async with Store.open(url) as store:
        now = store.now()
        await create_objects(store, *QUEUES)
        epoch = await store.lead("test")
        for number in range(10):  # run times are learned from these
            ended = pending_record(f"old{number}", now - 5000)
            await store.commit(finish_changes(ended, start=now - 2000, end=now - 2000 + RUN), epoch=epoch)
        for name in ("a", "b"):
            await store.commit(admit_changes(pending_record(name, now - 700), now - RUN / 2), epoch=epoch)
        queue = [pending_record(f"w{number:02}", now - 600 + number) for number in range(MIN_SAMPLES)]
        await store.commit(Changes(workloads=tuple(queue)), epoch=epoch)
        with Forecaster(url) as forecaster:
            assert forecaster.estimate()["starts"] == {}, "nothing is told without data"
            for number, record in enumerate(queue):  # two at a time, each for RUN seconds, as was simulated
                start = now + RUN / 2 + RUN * (number // 2)
                await store.commit(finish_changes(record, start=start, end=start + RUN), epoch=epoch)
            last = [pending_record(f"x{number}", now) for number in range(4)]
            await store.commit(Changes(workloads=tuple(last)), epoch=epoch)
            found = forecaster.estimate()
            assert found["starts"].keys() == {record.workload.uid for record in last}
            for number, record in enumerate(last):
                p50, p90 = (at - now for at in found["starts"][record.workload.uid])
                expected = RUN / 2 + RUN * (number // 2)
                assert p50 <= p90
                assert p50 == pytest.approx(expected, rel=0.25)
            limited = forecaster.estimate(a=RUN / 2 + 60, b=RUN / 2 + 60)["starts"]
            assert limited["x0"][0] < found["starts"]["x0"][0] - 60, "a time limit ends those that run sooner"
            forecaster.process.kill()
            forecaster.process.wait()
        with Forecaster(url) as forecaster:
            again = forecaster.estimate()
            assert (again["compared"], again["starts"].keys()) == (found["compared"], found["starts"].keys())
        saved = await store.start_estimates.load()
        assert saved is not None
        assert saved.shown["starts"] == again["starts"]


@pytest.mark.costly
async def test_forecaster_reports_a_missing_database_and_retries_at_the_next_request(tmp_path):
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    with Forecaster(url) as forecaster:
        assert "cannot be opened" in forecaster.estimate()["error"]
        await migrate(url)
        assert forecaster.estimate()["starts"] == {}


@pytest.mark.costly
async def test_forecaster_ends_silently_if_its_reader_is_gone(tmp_path):
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    await migrate(url)
    order = {
        "databaseUrl": url,
        "policy": {"fair_sharing": None, "admission_fair_sharing": None, "resources": None},
    }
    lines = f"{json.dumps(order)}\n{json.dumps({'namespaces': {}, 'limits': {}})}\n"
    read, write = os.pipe()
    os.close(read)  # as the kernel does for a process that is killed
    command = [sys.executable, "-P", "-m", "admission.cli.serve.forecaster"]
    try:
        ended = await asyncio.to_thread(
            subprocess.run, command, input=lines.encode(), stdout=write, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(write)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_remaining_run_time_comes_from_the_narrowest_known_group():
    durations = Durations()
    assert durations.remaining(job("new", 0.0)) is None
    assert durations.remaining(job("new", 0.0), elapsed=40.0, limit=100.0) == 60.0
    for number in range(20):
        durations.learn(job("small", 0.0), 100.0 + number)
        durations.learn(replace(job("large", 0.0), pod_sets=(PodSet("main", 8, {"cpu": 1000}),)), 5000.0)
    assert durations.remaining(job("new", 0.0)) == 110.0
    assert durations.remaining(job("new", 0.0), elapsed=110.0) == 5.0
    assert durations.remaining(job("new", 0.0), elapsed=300.0) == 300.0, "longer than any before"
    assert durations.remaining(job("new", 0.0), limit=60.0) == 60.0
    other = replace(job("other", 0.0), queue="elsewhere")
    assert durations.remaining(other) in (119.0, 5000.0), "of an unknown queue all that is known counts"


def test_ranges_follow_past_errors_and_the_share_that_held_is_measured():
    calibration = Calibration()
    assert calibration.ranges({"a": 600.0}) == {}
    for number in range(100):
        calibration.learn(1000.0, 10.0 * (number + 1) + 500.0)  # actual waits of 0.5 to 1.5 times the estimate
    told = calibration.ranges({"a": 1000.0})["a"]
    assert told.p50 == pytest.approx(1010.0, abs=15)
    assert told.p90 == pytest.approx(1410.0, abs=15)
    assert calibration.share_held is None
    for number in range(100):
        calibration.check(ReportedRange(told), 10.0 * (number + 1) + 500.0, started=True)
    assert calibration.share_held == pytest.approx(0.9, abs=0.02)


def test_workloads_still_waiting_shift_ranges_later():
    """Of 100 equal workloads only the half with the shortest waits has started: those waits are a biased sample."""
    calibration = Calibration()
    for number in range(50):
        calibration.learn(1000.0, 20.0 * number)
    alone = calibration.ranges({"a": 1000.0})["a"]
    assert alone.p50 == pytest.approx(500.0, abs=30)
    known = calibration.ranges({"a": 1000.0}, waiting=[(1000.0, 1000.0)] * 50)["a"]
    assert known.p50 == pytest.approx(1000.0, abs=30)
    assert known.p90 >= known.p50
    far = calibration.ranges({"a": 1000.0}, waiting=[(1000.0, 5.0)] * 50)["a"]
    assert far.p50 == pytest.approx(alone.p50, abs=30), "who has hardly waited yet tells nothing"


def test_range_missed_by_a_waiting_workload_counts_immediately_and_once():
    calibration = Calibration()
    for number in range(100):
        calibration.learn(1000.0, 500.0 + 10.0 * number)
    told = calibration.ranges({"a": 1000.0})["a"]
    claims = [ReportedRange(told) for _ in range(MIN_SAMPLES)]
    for claim in claims:
        calibration.check(claim, told.p50 / 2, started=False)
    assert calibration.share_held is None
    assert calibration.ranges({"a": 1000.0})["a"] == told, "nothing is known yet"
    for claim in claims:
        calibration.check(claim, told.p90 + 1, started=False)
        calibration.check(claim, told.p90 + 2, started=True)
    assert calibration.share_held == 0.0
    wider = calibration.ranges({"a": 1000.0})["a"]
    assert (wider.p50 > told.p50, wider.p90 > 2 * told.p90) == (True, True)
    for _ in range(300):  # ranges shrink again when more of them hold than promised
        calibration.check(ReportedRange(wider), 1.0, started=True)
    again = calibration.ranges({"a": 1000.0})["a"]
    assert (again.p50 < wider.p50, again.p90 < wider.p90) == (True, True)


def test_estimated_start_is_shown_as_time_from_now():
    now = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)

    def at(minutes: float) -> str:
        return (now + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")

    subject = ExplainedWorkload("Job ns/a", "lq", now.timestamp(), "WaitingForQuota", "It waits.")

    def said(p50: float, p90: float, share_held: float | None = None) -> list[str]:
        base = now.timestamp()
        estimate = StartEstimate(base, base + 60 * p50, base + 60 * p90, share_held)
        return paragraphs(subject, Explanation("Pending"), now=base, estimate=estimate).sentences

    assert said(5, 130, 0.912)[0] == (
        "Job ns/a waits; probably in 5 min, nine of ten within 2 h 10 min (91% of past estimates held)."
    )
    assert said(-5, 20)[0] == "Job ns/a waits; probably soon, nine of ten within 20 min."
    assert said(-5, -1)[0] == "Job ns/a waits; late: nine of ten with its estimate would have started."
    without = paragraphs(subject, Explanation("Pending"), now=now.timestamp()).sentences
    assert not [line for line in without if "start" in line]

    def cell(*times: float) -> object:
        estimate = {"estimatedStart": {"p50": at(times[0]), "p90": at(times[1])}} if times else {}
        shown = {
            "metadata": {"name": "job-a-b", "creationTimestamp": at(-9)},
            "spec": {"podSets": []},
            "status": {"state": "pending", "queuedAt": at(-9), "conditions": [], **estimate},
        }
        answer = table({}, columns_of("Workload"), [shown], now=now.timestamp(), include="None")
        names = [column["name"] for column in answer["columnDefinitions"]]
        return answer["rows"][0]["cells"][names.index("Starts")]

    assert cell(5, 130) == "~5m,<2h10m"
    assert cell(-5, -1) == "late"
    assert cell(-5, 20) == "<20m"
    assert cell() is None
