"""The number of commits for a stream of Jobs: on machines of any speed with a simulated clock, and on this machine."""

from __future__ import annotations

import pytest
from job_examples import cluster_queue, flavor, job, local_queue

from admission.controller.decisions.committer import INTERVAL, MIN_INTERVAL, CommitBatching


def commits(arrivals: list[float], *, each: float) -> list[float]:
    """Return the start times of the commits that a loop makes; `each`: seconds that a commit takes."""
    batching, now, taken, begun = CommitBatching(), 0.0, 0, []
    while taken < len(arrivals):
        arrived = sum(at <= now for at in arrivals) - taken
        pause = batching.due_in(now, arrived=arrived, wanted=False)
        if not arrived or pause > 0:
            coming = [at for at in arrivals if at > now]
            now = min([*coming[:1], *([now + pause] if arrived else [])])
            continue
        taken += arrived
        begun.append(now)
        now += each
        batching.committed_at = now
    return begun


@pytest.mark.parametrize("seconds", [0.0, 1.0, 5.0, 20.0, 39.0])
@pytest.mark.parametrize("each", [0.003, 0.3])
def test_thousand_jobs_take_at_most_fifty_commits_at_any_arrival_rate(seconds, each):
    arrivals = [number * seconds / 1000 for number in range(1000)]
    assert len(commits(arrivals, each=each)) <= 50


def test_single_job_is_committed_immediately():
    assert commits([5.0, 9.0], each=0.01) == [5.0, 9.0]


def test_single_job_after_a_burst_is_committed_immediately():
    burst = [1.0] * 500
    assert commits([*burst, 4.0], each=0.01)[-1] == 4.0


def test_last_job_of_a_stream_is_committed_within_interval():
    stream = [1.0 + number / 300 for number in range(610)]
    assert commits(stream, each=0.01)[-1] - stream[-1] < INTERVAL


def test_freed_quota_that_is_wanted_is_committed_after_min_interval():
    batching = CommitBatching()
    batching.committed_at = 100.0
    assert batching.due_in(100.0, arrived=0, wanted=True) == pytest.approx(MIN_INTERVAL)
    assert batching.due_in(100.0, arrived=1, wanted=False) == pytest.approx(INTERVAL)


@pytest.mark.costly
async def test_burst_of_thousand_jobs_takes_at_most_fifty_write_transactions(world):
    await world.begin(flavor(), cluster_queue(cpu="1000"), local_queue())
    before = world.leading.statistics.write_transactions
    for number in range(1000):
        await world.submit(job(f"j{number}", cpu="1m", seconds=36_000))

    async def admitted() -> bool:
        status = (await world.store.workloads.cluster_queue_status()).get("cq")
        return status is not None and status.admitted == 1000

    await world.eventually(admitted)
    assert world.leading.statistics.write_transactions - before <= 50
