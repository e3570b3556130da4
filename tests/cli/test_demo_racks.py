"""The day of training runs and small jobs that the demo's scene "topology" plays."""

from __future__ import annotations

from collections import Counter

import pytest

from admission.cli.demo.topology import GPUS, NODES, Play, day_of_runs

RUNS = tuple(run for run in day_of_runs() if run.arrives < 7200)
BY_NAME = {run.name: run for run in RUNS}


@pytest.mark.parametrize("how", [{"topology": True}, {"packs": True}, {}])
def test_no_node_holds_more_than_its_gpus_and_each_run_has_all_its_pods(how: dict[str, bool]) -> None:
    play = Play("", RUNS, **how)
    play.until(7200)
    floor = play.course.floor
    used: Counter[int] = Counter()
    for name, nodes in floor.where.items():
        assert len(nodes) == BY_NAME[name].pods
        used.update(dict.fromkeys(nodes, BY_NAME[name].gpus) if len(nodes) > 1 else {nodes[0]: BY_NAME[name].gpus})
    assert [GPUS - used[node] for node in range(len(floor.free))] == floor.free
    assert min(floor.free) >= 0
    training = [name for name in floor.where if BY_NAME[name].trains]
    assert len(training) > 5
    split = [name for name in training if len({node // NODES for node in floor.where[name]}) > 1]
    assert play.course.split == len(split)
    assert not split if how.get("topology") else len(split) > 5


def test_gpus_that_ran_are_those_of_the_runs_until_now() -> None:
    runs = tuple(run for run in RUNS if run.trains)[:2]
    play = Play("", runs, topology=True)
    play.until(7200)
    assert play.course.busy == pytest.approx(sum(NODES * GPUS * (7200 - run.arrives) for run in runs))
