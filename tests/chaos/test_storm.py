"""Short forms of `make chaos`, on PostgreSQL and SQLite, and with a leader that is frozen and resumed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.chaos.kinds import plan_of_kinds
from tests.chaos.schedule import Fault, schedule
from tests.chaos.storm import plan_of, storm

if TYPE_CHECKING:
    from tests.chaos.storm import Outcome


NODE_FAULTS = (Fault.NODE_FAILS, Fault.NODE_GOES)
CLUSTER_FAULTS = (
    *(fault for fault in Fault if fault.name.endswith("_CLUSTER")),
    *(Fault.SCALE, Fault.DELETE_COPY, Fault.FORGE_COPY),
)
POLICY_FAULTS = (Fault.EDIT_BUDGET, Fault.CHANGE_LIMIT, Fault.RESERVE, Fault.CALENDAR)


def assert_promises_kept(outcome: Outcome, seed: int) -> None:
    assert not outcome.broken, f"seed {seed}: {outcome.broken}\n{outcome.logs}"


@pytest.mark.usefixtures("warm_children")  # the killed and frozen processes are those of tests/chaos/fleet.py
@pytest.mark.long
@pytest.mark.postgres
async def test_promises_hold_under_faults_with_two_replicas_on_postgresql(own_postgresql, tmp_path):
    seed = random.randrange(2**32)
    outcome = await storm(
        plan_of(100, speed=240),
        seed=seed,
        # FREEZE_LEADER, nodes, clusters and policies have their own tests below.
        counts=dict.fromkeys(Fault, 1)
        | {Fault.FREEZE_LEADER: 0, Fault.STEP_CLOCK: 2}
        | dict.fromkeys(NODE_FAULTS + CLUSTER_FAULTS + POLICY_FAULTS, 0),
        replicas=2,
        folder=tmp_path,
        database_url=own_postgresql.url("sluice_template"),
        server=own_postgresql,
    )
    assert_promises_kept(outcome, seed)


@pytest.mark.usefixtures("warm_children")  # the killed and frozen processes are those of tests/chaos/fleet.py
@pytest.mark.long
async def test_promises_hold_under_faults_with_six_kinds_and_one_replica_on_sqlite(tmp_path):
    seed = random.randrange(2**32)
    counts = dict.fromkeys((Fault.CUT_WATCHES, Fault.CHANGE_QUOTA, Fault.HOLD, Fault.DRAIN), 1)
    outcome = await storm(
        plan_of_kinds(3, speed=240),
        seed=seed,
        counts=counts | {Fault.KILL_LEADER: 3, Fault.STEP_CLOCK: 2},
        replicas=1,
        folder=tmp_path,
        database_url=f"sqlite:///{tmp_path / 'sluice.db'}",
    )
    assert_promises_kept(outcome, seed)


@pytest.mark.usefixtures("warm_children")  # the killed processes are those of tests/chaos/fleet.py
@pytest.mark.long
async def test_replay_of_the_ledger_agrees_with_what_happened(tmp_path):
    seed = random.randrange(2**32)
    outcome = await storm(
        plan_of(100, speed=60),
        seed=seed,
        counts=dict.fromkeys((Fault.KILL_LEADER, Fault.CUT_WATCHES, Fault.CHANGE_QUOTA, Fault.HOLD, Fault.DRAIN), 1),
        replicas=1,
        folder=tmp_path,
        database_url=f"sqlite:///{tmp_path / 'sluice.db'}",
        replays=True,
    )
    assert_promises_kept(outcome, seed)


@pytest.mark.usefixtures("warm_children")  # the killed and frozen processes are those of tests/chaos/fleet.py
@pytest.mark.long
@pytest.mark.postgres
async def test_leader_frozen_past_its_lease_loses_leadership_and_breaks_no_promise(own_postgresql, tmp_path):
    seed = random.randrange(2**32)
    outcome = await storm(
        plan_of(100, speed=240),
        seed=seed,
        counts={Fault.FREEZE_LEADER: 3, Fault.HOLD: 1},
        replicas=2,
        folder=tmp_path,
        database_url=own_postgresql.url("sluice_template"),
        server=own_postgresql,
    )
    assert_promises_kept(outcome, seed)
    # In the complete logs: `outcome.logs` has only their last lines.
    lost_leadership = sum(log.read_text().count("no longer the leader: ") for log in tmp_path.glob("replica-*.log"))
    assert lost_leadership >= 3, outcome.logs


@pytest.mark.usefixtures("warm_children")  # the killed processes are those of tests/chaos/fleet.py
@pytest.mark.long
async def test_placed_pods_never_exceed_a_node_whatever_fails(tmp_path):
    seed = random.randrange(2**32)
    outcome = await storm(
        plan_of(60, speed=240),
        seed=seed,
        counts=dict.fromkeys(NODE_FAULTS, 3) | {Fault.KILL_LEADER: 3, Fault.CUT_WATCHES: 1, Fault.HOLD: 1},
        replicas=1,
        folder=tmp_path,
        database_url=f"sqlite:///{tmp_path / 'sluice.db'}",
        by_topology=True,
    )
    assert_promises_kept(outcome, seed)


@pytest.mark.usefixtures("warm_children")  # the killed processes are those of tests/chaos/fleet.py
@pytest.mark.long
@pytest.mark.costly
async def test_promises_hold_over_three_clusters_of_which_some_are_lost_and_rebuilt(tmp_path):
    seed = random.randrange(2**32)
    outcome = await storm(
        plan_of(60, speed=120),
        seed=seed,
        counts=dict.fromkeys(CLUSTER_FAULTS, 1) | {Fault.KILL_LEADER: 3, Fault.HOLD: 1},
        replicas=1,
        folder=tmp_path,
        database_url=f"sqlite:///{tmp_path / 'sluice.db'}",
        clusters=3,
    )
    assert_promises_kept(outcome, seed)


@pytest.mark.usefixtures("warm_children")  # the killed processes are those of tests/chaos/fleet.py
@pytest.mark.long
async def test_policies_hold_whatever_is_killed_edited_and_set(tmp_path):
    seed = random.randrange(2**32)
    outcome = await storm(
        plan_of(60, speed=120),
        seed=seed,
        counts=dict.fromkeys(POLICY_FAULTS, 3) | {Fault.KILL_LEADER: 3, Fault.STEP_CLOCK: 2, Fault.HOLD: 1},
        replicas=1,
        folder=tmp_path,
        database_url=f"sqlite:///{tmp_path / 'sluice.db'}",
        with_policies=True,
    )
    assert_promises_kept(outcome, seed)


def test_the_seed_decides_the_schedule():
    counts = dict.fromkeys(Fault, 3)
    assert schedule(seed=5, jobs=300, counts=counts) == schedule(seed=5, jobs=300, counts=counts)
    assert schedule(seed=5, jobs=300, counts=counts) != schedule(seed=6, jobs=300, counts=counts)
