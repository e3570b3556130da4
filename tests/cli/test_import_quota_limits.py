"""Queues made by `sluice import volcano`, `kai`, ...: their usage never exceeds the limits of the other system."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quota_games import AMOUNTS, Node, kai, koordinator, mcad, named, trees, volcano, yunikorn

from admission.cli.commands.import_quotas import kai as of_kai
from admission.cli.commands.import_quotas import koordinator as of_koordinator
from admission.cli.commands.import_quotas import mcad as of_mcad
from admission.cli.commands.import_quotas import volcano as of_volcano
from admission.cli.commands.import_quotas import yunikorn as of_yunikorn
from admission.cli.commands.import_quotas.quota_tree import translate
from admission.model.manifests import Document
from tests.engine.scenes import World, workload

SYSTEMS = {
    "volcano": (of_volcano.SYSTEM, volcano),
    "kai": (of_kai.SYSTEM, kai),
    "koordinator": (of_koordinator.SYSTEM, koordinator),
    "yunikorn": (of_yunikorn.SYSTEM, yunikorn),
    "mcad": (of_mcad.SYSTEM, mcad),
}


def sluice_name(system, name, above):
    """Name of an imported queue in Sluice, and of its LocalQueue."""
    if system == "yunikorn":
        return ".".join(("root", *above, name))
    return f"t.{name}" if system == "mcad" else name


def limit_of(system, node):
    return node.guaranteed if system == "mcad" and node.limit is not None else node.limit


def imported_objects(system, top, capacity):
    read, write = SYSTEMS[system]
    found = read.read([Document("test", body) for body in write(top)], ("ns",))
    made = translate(found.queues, flavor="default", capacity={} if capacity is None else {"cpu": 1000 * capacity})
    return [each.item for each in made.objects]


def used(world, system, top):
    """Cpus in use in each queue and all queues below it, by name."""
    total = dict.fromkeys((name for name, _, _ in named(top)), 0.0)
    usage = world.engine.usage()
    for name, above, _ in named(top):
        own = usage.get(sluice_name(system, name, above), {}).get("default", {}).get("cpu", 0) / 1000
        for each in (*above, name):
            total[each] += own
    return total


@pytest.mark.costly
@pytest.mark.parametrize("system", SYSTEMS)
@settings(max_examples=30)
@given(top=trees(), capacity=st.none() | AMOUNTS.map(lambda cpus: 2 * cpus), random=st.randoms(use_true_random=False))
def test_imported_queue_never_uses_more_than_its_original_limit(system, top, capacity, random):
    world = World(*imported_objects(system, top, capacity))
    leaves = [sluice_name(system, name, above) for name, above, node in named(top) if not node.under]
    running = []
    for number in range(10 * len(leaves)):
        if running and random.random() < 0.3:
            world.gone(running.pop(random.randrange(len(running))))
        job = workload(f"w{number}", random.choice(leaves), random.randint(1, 3), priority=random.randint(0, 2))
        world.submit(job)
        decisions = world.engine.settle(world.now)
        running += [admit.workload.uid for admit in decisions.admitted]
        for evict in decisions.evicted:
            running.remove(evict.workload.uid)
            world.gone(evict.workload.uid)
        total = used(world, system, top)
        for name, _, node in named(top):
            limit = limit_of(system, node)
            assert limit is None or total[name] <= limit, name
        if capacity is not None:
            assert sum(total[f"q{number}"] for number in range(len(top))) <= capacity


def started_and_allowed(system, top, capacity, leaf):
    """Pods of one cpu that the `leaf`-th leaf queue starts in an empty cluster, and pods that its limits allow."""
    name, above, node = [each for each in named(top) if not each[2].under][leaf]
    by_name = {each: other for each, _, other in named(top)}
    limits = [limit_of(system, by_name[each]) for each in above] + [limit_of(system, node), capacity]
    world = World(*imported_objects(system, top, capacity))
    world.submit(*(workload(f"w{number}", sluice_name(system, name, above), created=number) for number in range(40)))
    return len(world.admitted()), min(limit for limit in limits if limit is not None)


@pytest.mark.parametrize("system", ["kai", "yunikorn"])  # in the other systems some quota is not lent
@settings(max_examples=30)
@given(top=trees(), capacity=AMOUNTS.map(lambda cpus: 2 * cpus), data=st.data())
def test_only_active_queue_can_use_all_that_its_limits_allow(system, top, capacity, data):
    leaves = sum(not node.under for _, _, node in named(top))
    got, allowed = started_and_allowed(system, top, capacity, data.draw(st.integers(0, leaves - 1)))
    assert got == allowed


def test_guarantee_is_reclaimed_from_borrowers():
    world = World(*imported_objects("kai", (Node(6, None), Node(4, None)), 10))
    world.submit(*(workload(f"a{number}", "q0", created=number) for number in range(10)))
    assert len(world.admitted()) == 10
    world.submit(*(workload(f"b{number}", "q1", created=20 + number) for number in range(10)))
    started, evicted = [], []
    for _ in range(5):  # each pending workload preempts another, and starts when that has terminated
        decisions = world.engine.settle(world.now)
        started += [admit.workload.name for admit in decisions.admitted]
        evicted += [evict.workload.name for evict in decisions.evicted]
        for evict in decisions.evicted:
            world.gone(evict.workload.uid)
    assert (len(evicted), len(started)) == (4, 4)
    assert {name[0] for name in evicted} == {"a"}


def test_volcano_deserved_quota_is_lent_but_not_its_guarantee():
    half_kept = (Node(6, None), Node(4, None))  # deserved 6 and 4, of which 3 and 2 are guaranteed
    assert started_and_allowed("volcano", half_kept, 10, 0) == (8, 10)
