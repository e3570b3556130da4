"""Reservations in a cluster: what is kept, what is evicted at the start, what is given back, and a restart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from job_examples import cluster_queue, flavor, job, local_queue, runs
from postgresql_databases import on_both_databases
from topology_examples import HOSTNAME, bound, placed_job, queues_by, racks, racks_of

from admission.controller.state.policy import ControllerPolicy
from admission.engine import Policy as EnginePolicy
from admission.engine import Reservations, TopologyRules

POLICY = ControllerPolicy(engine=EnginePolicy(policies=(Reservations(),)))
PLACING = ControllerPolicy(engine=EnginePolicy(policies=(Reservations(),), topology=TopologyRules()))
LIMIT = "sluice.dev/max-exec-time-seconds"


def reservation(world, *, start: float, end: float, cpu: int = 3, **spec):
    """A Reservation for the LocalQueue `own` from `start` to `end`, in seconds from now."""
    now = datetime.fromtimestamp(world.clock(), UTC)
    first, last = ((now + timedelta(seconds=each)).isoformat()[:19] for each in (start, end))
    quotas = [{"flavor": "default", "resource": "cpu", "amount": cpu}]
    given = {"clusterQueue": "cq", "quotas": quotas, "holders": {"localQueues": ["own"]}, **spec}
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "Reservation",
        "metadata": {"name": "bench"},
        "spec": {"start": first, "end": last, **given},
    }


async def world_with(world, *objects):
    await world.apply(flavor(), cluster_queue(cpu="4"), local_queue(), local_queue("own"), *objects)
    await world.start(POLICY)


def limited(name: str, seconds: int, **fields):
    manifest = job(name, **fields)
    manifest["metadata"].setdefault("labels", {})[LIMIT] = str(seconds)
    return manifest


@on_both_databases
async def test_quota_is_free_for_its_holders_at_the_start(world):
    await world_with(world, reservation(world, start=1000, end=5000, atStart="Preempt"))
    await world.submit(limited("short", 600))
    await world.job("short", runs)
    await world.submit(job("long", cpu="2"))
    record = await world.record("long", "pending", reason="ReservedForOthers")
    assert record.message.startswith("Reservation bench keeps 3 cpu of default in ClusterQueue cq from ")
    assert record.message.endswith("set the label sluice.dev/max-exec-time-seconds.")
    await world.end()
    await world.start(POLICY)  # the Reservation is an object, and what runs is in the database
    await world.record("long", "pending", reason="ReservedForOthers")
    await world.submit(job("small"))  # one of four fits beside
    await world.job("small", runs)
    await world.submit(job("holder", cpu="3", queue="own"))
    world.pass_time(700)
    await world.job("holder", runs)


async def test_start_evicts_what_is_in_the_way_and_the_end_lets_it_run(world):
    await world_with(world)
    await world.submit(job("low", cpu="3"))
    await world.job("low", runs)
    manifest = reservation(world, start=500, end=2000, atStart="Preempt")
    await world.apply(manifest)

    async def said():
        found = [each for each in world.user.list("events", "default") if each["reason"] == "ReservationShort"]
        return [(each["message"], each["involvedObject"]["name"]) for each in found]

    note = f"Reservation bench: 2 of 3 cpu of default may not be free at {manifest['spec']['start']}Z, "
    note += "because of team-a/low (without a time limit); as many as needed are evicted then"
    assert await world.eventually(said) == [(note, "bench")]
    world.pass_time(501)
    record = await world.record("low", "pending", reason="ReservedForOthers")
    assert "ReservationStarted" in {reason for reason, _ in await world.history("low")}
    assert record.message.startswith("Reservation bench keeps 3 cpu")
    await world.submit(job("holder", cpu="3", queue="own", seconds=1))
    await world.job("holder", runs)
    world.pass_time(1500)
    await world.job("low", runs)
    assert await said() == [(note, "bench")]


async def test_unused_reservation_is_given_back_and_stays_so(world):
    manifest = reservation(world, start=100, end=90_000, releaseUnusedAfterSeconds=600)
    await world_with(world, manifest)
    await world.submit(job("waits", cpu="2"))
    await world.record("waits", "pending", reason="ReservedForOthers")
    world.clock.advance(200)

    async def is_given_back():
        world.clock.advance(100)  # nothing happens, but it has been seen to be unused for long enough
        return (await world.store.queues.get("Reservation", "bench")).spec.released_at

    await world.eventually(is_given_back)
    await world.job("waits", runs)
    await world.apply(manifest)  # as from a repository
    assert (await world.store.queues.get("Reservation", "bench")).spec.released_at
    (*_, last) = await world.store.queues.versions("Reservation", "bench")
    assert (last.author, last.reason) == ("sluice", "nobody has used it for 600 s")


async def test_rack_is_chosen_once_kept_free_and_given_to_its_holder(world):
    await racks(world, 1, "a1", "a2")
    manifest = reservation(
        world, start=1000, end=5000, cpu=4, topology={"level": "rack"},
        quotas=[{"flavor": "gpu", "resource": "cpu", "amount": 4}],
    )  # fmt: skip
    await world.apply(*queues_by("rack", HOSTNAME), local_queue("own"))
    await world.start(PLACING)
    await world.submit(placed_job("endless", 2))
    (rack,) = racks_of(await bound(world, "endless", 2))
    await world.apply(manifest)

    async def chosen():
        return (await world.store.queues.get("Reservation", "bench")).spec.topology.domains

    free = "a1" if rack == "a2" else "a2"
    assert await world.eventually(chosen) == (free,)
    await world.submit(placed_job("long", 4))
    record = await world.record("long", "pending", reason="ReservedForOthers")
    assert record.message.startswith(f"Reservation bench keeps the nodes of rack {free} from ")
    await world.end()
    await world.start(PLACING)
    await world.apply(manifest)  # as from a repository
    assert await chosen() == (free,)
    await world.submit(placed_job("holder", 4) | {"metadata": job("holder", queue="own")["metadata"]})
    assert racks_of(await bound(world, "holder", 4)) == {free}

    manifest["spec"] |= {"atStart": "Preempt", "topology": {"level": "rack", "domains": [rack]}}
    await world.apply(manifest)

    async def said():
        notes = [each["message"] for each in world.user.list("events", "default")]
        return [note for note in notes if "team-a/endless. They are evicted then." in note]

    await world.eventually(said)
    world.clock.advance(1001)
    await world.record("endless", "pending", reason="ReservedForOthers")
