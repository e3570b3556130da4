"""Dependencies: workloads that start after others of their namespace."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from admission.engine import Dependencies, Engine, Policy, WorkloadEnded
from admission.model.terms import Terms, parse_after, parse_at_most
from tests.engine.scenes import World, cluster_queue, local_queue, workload


def scene(cpu: int = 4, **fields: object) -> World:
    policy = Policy(policies=(Dependencies(),))
    return World(cluster_queue("q", cpu, **fields), local_queue("q"), engine=Engine(policy))


def after(name: str, text: str, **fields: object):
    return replace(workload(name, "q", **fields), terms=Terms(after=parse_after(text)))


def end(world: World, name: str, *, ok: bool = True, kind: str = "job", namespace: str = "ns") -> None:
    world.gone(name)
    world.engine.observe(WorkloadEnded(namespace, name, kind, world.now, ok), now=world.now)


def why(world: World, name: str) -> tuple[str, str]:
    found = world.engine.explain(name)
    assert found is not None
    return found.reason, found.message


def test_workload_starts_when_the_others_have_ended():
    world = scene()
    world.submit(workload("prep", "q"), workload("clean", "q"), after("train", "ok(prep), any(clean)"))
    assert world.admitted() == ["clean", "prep"]
    assert why(world, "train") == (
        "Dependency",
        "It starts when prep has succeeded and clean has ended (annotation sluice.dev/after).",
    )
    end(world, "clean", ok=False)
    assert world.admitted() == []
    assert "clean" not in why(world, "train")[1]
    end(world, "prep")
    assert world.admitted() == ["train"]


def test_failure_keeps_it_pending_until_that_is_run_again():
    world = scene()
    world.submit(workload("prep", "q"), after("train", "ok(prep)"))
    world.admitted()
    end(world, "prep", ok=False)
    assert world.admitted() == []
    reason, message = why(world, "train")
    assert reason == "Dependency"
    assert message.startswith("It can not start: prep has not succeeded")
    again = replace(workload("prep", "q"), uid="again")
    world.submit(again)
    assert world.admitted() == ["prep"]
    assert why(world, "train")[1].startswith("It starts when prep has succeeded")
    world.gone("again")
    world.engine.observe(WorkloadEnded("ns", "prep", "job", 2000.0, True), now=world.now)
    assert world.admitted() == ["train"]


def test_what_has_ended_before_counts():
    world = scene()
    end_event = WorkloadEnded("ns", "prep", "job", 2000.0, True)
    world.engine.observe(end_event, now=world.now)
    world.submit(after("train", "ok(prep)"), after("other", "ok(jobset/prep)"))
    assert world.admitted() == ["train"]
    assert "jobset/prep" in why(world, "other")[1]
    world.engine.observe(replace(end_event, kind="jobset"), now=world.now)
    assert world.admitted() == ["other"]


def test_end_of_one_that_was_replaced_before_changes_nothing():
    """The pods of a deleted Job may end after those of the one that has replaced it."""
    world = scene()
    world.engine.observe(WorkloadEnded("ns", "prep", "job", 2000.0, True), now=world.now)
    world.engine.observe(WorkloadEnded("ns", "prep", "job", 1000.0, False), now=world.now)
    world.submit(after("train", "ok(prep)"))
    assert world.admitted() == ["train"]


def test_namespaces_have_names_of_their_own():
    world = scene()
    world.engine.observe(WorkloadEnded("other", "prep", "job", 2000.0, True), now=world.now)
    world.submit(after("train", "ok(prep)"))
    assert world.admitted() == []


@pytest.mark.parametrize(
    ("links", "circle"), [({"a": "a"}, "a after a"), ({"a": "b", "b": "c", "c": "a"}, "a after b")]
)
def test_circle_is_shown_and_ends_when_one_is_changed(links, circle):
    world = scene()
    jobs = {name: after(name, f"any({other})") for name, other in links.items()}
    world.submit(*jobs.values())
    assert world.admitted() == []
    for name in links:
        assert "waits for itself" in why(world, name)[1]
    assert circle in why(world, "a")[1]
    world.submit(replace(jobs["a"], terms=Terms()))
    assert world.admitted() == ["a"]


def test_chain_and_circle_of_thousands_wait_and_hold_nobody_up():
    world = scene()
    chain = [after(f"w{number}", f"ok(w{number - 1})", created=float(number)) for number in range(1, 2000)]
    world.submit(*reversed(chain), workload("other", "q"))
    assert world.admitted() == ["other"]
    assert why(world, "w1999")[1].startswith("It starts when w1998 has succeeded")
    world.submit(after("w0", "ok(w1999)"))
    assert world.admitted() == []
    assert "waits for itself (w1999 after w1998 after" in why(world, "w1999")[1]
    end(world, "w7")
    assert world.admitted() == ["w8"]
    assert why(world, "w1999")[1].startswith("It starts when w1998 has succeeded")


@pytest.mark.parametrize("seed", range(10))
def test_circles_are_those_of_a_plain_search(seed):
    random, world = Random(seed), scene()
    links = {f"w{number}": {f"w{random.randrange(12)}" for _ in range(random.randrange(3))} for number in range(12)}
    for name, others in links.items():
        world.submit(after(name, ",".join(f"any({each})" for each in others)) if others else workload(name, "other"))
    world.admitted()

    def reached(name: str) -> set[str]:
        found: set[str] = set()
        left = [*links[name]]
        while left:
            if (each := left.pop()) not in found:
                found.add(each)
                left += links[each]
        return found

    for name, others in links.items():
        assert ("waits for itself" in why(world, name)[1]) is (name in reached(name)), others


@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
def test_others_pass_a_workload_that_waits(strategy):
    world = scene(1, queueingStrategy=strategy)
    world.submit(after("train", "ok(prep)", created=0.0), workload("small", "q", created=1.0))
    assert world.admitted() == ["small"]


def test_engine_without_dependencies_filters_nothing():
    world = scene()
    world.submit(workload("prep", "q"))
    world.admitted()
    end(world, "prep")
    assert not world.engine._registry.policies.filtering
    world.submit(after("train", "ok(prep)"))
    assert world.engine._registry.policies.filtering


@pytest.mark.parametrize(
    "text", ["", "prep", "ok()", "ok(prep", "notok(prep)", "ok(a) any(b)", "ok(Prep)", "ok(a/b/c)"]
)
def test_other_texts_are_faults(text):
    with pytest.raises(ValueError, match="must be a list such as"):
        parse_after(text)


def test_at_most_so_many_of_a_set_are_admitted():
    world = scene()
    jobs = [replace(workload(f"s{number}", "q"), terms=Terms(at_most=("sweep", 2))) for number in range(4)]
    world.submit(*jobs, workload("other", "q", created=9.0))
    assert world.admitted() == ["s0", "s1", "other"]
    assert why(world, "s2") == (
        "SetLimitReached",
        "2 of at most 2 workloads of the set sweep are admitted (annotation sluice.dev/at-most).",
    )
    world.gone("s0")
    assert world.admitted() == ["s2"]
    world.gone("other")
    assert world.admitted() == []
    world.submit(replace(jobs[3], terms=Terms(at_most=("sweep", 3))))
    assert world.admitted() == ["s3"], "each waits by its own number"


@pytest.mark.parametrize("text", ["sweep", "sweep=0", "=4", "sweep=-1", "Sweep=4", "sweep=4,other=2"])
def test_other_sets_are_faults(text):
    with pytest.raises(ValueError, match="such as sweep=4"):
        parse_at_most(text)


def test_terms_survive_the_database():
    terms = Terms(may_borrow=False, after=parse_after("ok(prep),any(jobset/clean)"), at_most=("sweep", 4))
    assert Terms.of(terms.document()) == terms
