"""The watcher of quota knows pods only: what counts, from when until when, and what a pod asks for."""

from __future__ import annotations

from typing import Any

import pytest

from admission.cli.demo.live_pods import LivePods, requests_of

LIMITS = {"a": {"cpu": 4_000}, "b": {"cpu": 4_000}}


class Watched:
    def __init__(self, **options: Any) -> None:
        self.live = LivePods(LIMITS, {"cpu": 6_000}, **options)

    def show(self, name: str, cpu: str = "2", *, namespace: str = "a", phase: str = "Running", **more: Any) -> None:
        metadata = {"namespace": namespace, "name": name, **more.pop("metadata", {})}
        spec = {"containers": [container(cpu)], **more}
        self.live.pod(f"{namespace}/{name}", {"metadata": metadata, "spec": spec, "status": {"phase": phase}}, 1.0)

    def gone(self, name: str, namespace: str = "a") -> None:
        self.live.pod(f"{namespace}/{name}", None, 1.0)

    def alive(self, who: str = "a") -> int:
        return self.live.alive[who]["cpu"]


def container(cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    "state",
    [
        {"phase": "Pending"},
        {"phase": "Pending", "schedulingGates": [{"name": "example.com/gate"}]},
        {"phase": "Pending", "nodeName": "n"},
        {"phase": "Running", "nodeName": "n"},
        {"phase": "Running", "nodeName": "n", "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"phase": "Unknown", "nodeName": "n"},
    ],
)
def test_a_pod_counts_from_its_creation_until_it_has_ended(state: dict[str, Any]) -> None:
    watched = Watched()
    watched.show("x", **state)
    assert watched.alive() == 2_000
    assert watched.live.on_nodes["a"]["cpu"] == (2_000 if "nodeName" in state else 0)
    watched.gone("x")
    watched.gone("x")
    assert watched.alive() == watched.live.on_nodes["a"]["cpu"] == 0


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_asks_for_nothing_also_while_it_is_kept(phase: str) -> None:
    watched = Watched()
    for number in range(10):
        watched.show(f"x{number}")
        watched.show(f"x{number}", phase=phase)
        watched.show(f"x{number}", phase=phase)
    assert watched.alive() == 0
    assert (watched.live.checks, watched.live.broken) == (10, 0)


def test_more_than_a_payer_may_have_is_noticed_when_the_pod_comes() -> None:
    watched = Watched()
    for name in ("x", "y", "z"):
        watched.show(name)
    assert watched.live.violations == ["a: pods request 6 cpu, at most 4 allowed, 1.0 s after the start"]
    assert (watched.live.checks, watched.live.broken) == (3, 1)


def test_more_than_all_may_have_together_is_noticed() -> None:
    watched = Watched()
    for name in ("x", "y"):
        watched.show(name)
        watched.show(name, namespace="b")
    assert watched.live.violations == ["all teams: pods request 8 cpu, at most 6 allowed, 1.0 s after the start"]


def test_pods_that_are_asked_to_end_count_beside_those_that_replace_them() -> None:
    watched = Watched()
    for name in ("x", "y"):
        watched.show(name)
        watched.show(name, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    watched.show("z")
    assert watched.live.broken == 1


def test_a_pod_that_is_resized_is_checked_again() -> None:
    watched = Watched()
    watched.show("x")
    watched.show("x", "5")
    assert (watched.live.checks, watched.live.broken) == (2, 1)
    assert watched.alive() == 5_000


def test_pods_of_nobody_are_left_out_and_who_pays_may_be_said_otherwise() -> None:
    def by_label(pod: dict[str, Any]) -> str | None:
        return pod["metadata"].get("labels", {}).get("queue")

    watched = Watched(payer=by_label)
    watched.show("x", "9")
    assert (watched.alive(), watched.live.checks) == (0, 0)
    watched.show("y", metadata={"labels": {"queue": "b"}})
    watched.show("y")  # the label is taken away: who paid for it goes on
    assert watched.alive("b") == 2_000
    watched.show("z", metadata={"labels": {"queue": "elsewhere"}})
    assert watched.live.checks == 1


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container("1"), container("500m")]}, 1_500),
        ({"containers": [{"name": "c", "image": "i"}]}, 0),
        ({"containers": [container("1")], "initContainers": [container("3"), container("2")]}, 3_000),
        ({"containers": [container("1")], "initContainers": [container("1", restartPolicy="Always")]}, 2_000),
        (
            {
                "containers": [container("1")],
                "initContainers": [container("1", restartPolicy="Always"), container("3")],
            },
            4_000,
        ),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1_250),
        ({"containers": [container("1")], "resources": {"requests": {"cpu": "3"}}}, 3_000),
    ],
)
def test_a_pod_asks_for_what_it_needs_at_its_worst_moment(spec: dict[str, Any], cpu: int) -> None:
    assert requests_of(spec, ["cpu", "memory"]) == {"cpu": cpu, "memory": 0}
