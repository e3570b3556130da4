"""Recent usage of LocalQueues, seeded from the ledger after a restart: decay and admission penalties."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from store_examples import admission, admitted, requeued, workload

from admission.engine import AdmissionFairSharing, Policy
from admission.engine.policies.admission_fair_sharing import SharerUsed, UsageAverages
from admission.model.queues import ClusterQueue
from admission.store.policy_seeds import policy_seeds
from admission.store.records import Changes, Resized

SHARING = AdmissionFairSharing(half_life=3600.0, sampling_interval=300.0)


async def used_lately(store, clock, sharing=SHARING, mode="UsageBasedAdmissionFairSharing"):
    """Return the usage with which a new engine is seeded, by LocalQueue and resource, in cores, bytes and devices."""
    spec = {"admissionScope": {"admissionMode": mode}}
    queue = ClusterQueue.model_validate({"metadata": {"name": "cq"}, "spec": spec})
    events = await policy_seeds(store, Policy(policies=(sharing,)), [queue], now=clock())
    return {event.key: event.consumed for event in events if isinstance(event, SharerUsed)}


def penalty_of(share):
    """Return the configuration with which the penalty of an admission is this share of its amount."""
    return replace(SHARING, sampling_interval=-math.log2(1 - share) * SHARING.half_life)


@pytest.mark.parametrize("seed", range(5))
async def test_usage_seeded_from_the_ledger_equals_usage_of_a_running_engine(store, clock, seed):
    epoch = await store.lead("test")
    dice = random.Random(seed)
    engine = UsageAverages(SHARING)
    held = {}
    for number in range(60):
        clock.advance(dice.expovariate(1 / 200))
        engine.entries(clock())  # the engine reads usage at each event
        if held and dice.random() < 0.5:
            uid = dice.choice(sorted(held))
            one, amount = held.pop(uid)
            engine.free(("team-a", one.queue), uid, {"cpu": amount}, clock())
            await store.commit(requeued(one, at=clock()), epoch=epoch)
        else:
            one, amount = workload(str(number), queue=dice.choice(["a", "b"])), dice.randrange(1, 9) * 1000
            held[one.uid] = one, amount
            engine.admit(("team-a", one.queue), one.uid, {"cpu": amount}, clock())
            await store.commit(admitted(one, admission(amount), at=clock()), epoch=epoch)
        clock.advance(1)
        engine.entries(clock())
    used = await used_lately(store, clock)
    for key, entry in engine.entries(clock()).items():
        assert used[key]["cpu"] == pytest.approx(entry.consumed["cpu"], rel=0.005)


async def test_past_usage_halves_with_each_half_life_and_is_finally_dropped(store, clock):
    epoch = await store.lead("test")
    one = workload("x")
    await store.commit(admitted(one, admission(4000), at=clock()), epoch=epoch)
    clock.advance(3600)
    await store.commit(requeued(one, at=clock()), epoch=epoch)
    queue = ("team-a", one.queue)
    for share in (0.5, 0.25, 0.125):
        used = await used_lately(store, clock, penalty_of(0.0))
        assert used[queue]["cpu"] == pytest.approx(4 * share)
        clock.advance(3600)
    clock.advance(3600 * 20)
    assert await used_lately(store, clock) == {}
    assert await used_lately(store, clock, replace(SHARING, half_life=0.0)) == {}


async def test_admission_penalty_is_charged_once_and_only_with_fair_sharing(store, clock):
    epoch = await store.lead("test")
    one = workload("x")
    queue = ("team-a", one.queue)
    await store.commit(admitted(one, admission(4000), at=clock()), epoch=epoch)
    assert (await used_lately(store, clock, penalty_of(0.1)))[queue]["cpu"] == pytest.approx(0.4)
    assert (await used_lately(store, clock, penalty_of(0.1), mode="NoAdmissionFairSharing"))[queue]["cpu"] == 0
    clock.advance(1e-3)
    smaller = Changes(resized=(Resized(one, replace(admission(2000)), at=clock()),))
    await store.commit(smaller, epoch=epoch)
    assert (await used_lately(store, clock, penalty_of(0.1)))[queue]["cpu"] == pytest.approx(0.4, abs=1e-5)
