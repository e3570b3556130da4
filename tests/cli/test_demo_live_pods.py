"""`LivePods` checks quota from pods alone: which pods count, for how long, and with which requests."""

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
def test_pod_counts_in_each_state_until_it_is_deleted(state: dict[str, Any]) -> None:
    watched = Watched()
    watched.show("x", **state)
    assert watched.alive() == 2_000
    assert watched.live.on_nodes["a"]["cpu"] == (2_000 if "nodeName" in state else 0)
    watched.gone("x")
    watched.gone("x")
    assert watched.alive() == watched.live.on_nodes["a"]["cpu"] == 0


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_ended_pod_does_not_count_while_it_still_exists(phase: str) -> None:
    watched = Watched()
    for number in range(10):
        watched.show(f"x{number}")
        watched.show(f"x{number}", phase=phase)
        watched.show(f"x{number}", phase=phase)
    assert watched.alive() == 0
    assert (watched.live.checks, watched.live.broken) == (10, 0)


def test_pods_above_the_limit_of_a_payer_are_reported() -> None:
    watched = Watched()
    for name in ("x", "y", "z"):
        watched.show(name)
    assert watched.live.violations == ["a: pods request 6 cpu, at most 4 allowed, 1.0 s after the start"]
    assert (watched.live.checks, watched.live.broken) == (3, 1)


def test_pods_above_the_total_limit_are_reported() -> None:
    watched = Watched()
    for name in ("x", "y"):
        watched.show(name)
        watched.show(name, namespace="b")
    assert watched.live.violations == ["all teams: pods request 8 cpu, at most 6 allowed, 1.0 s after the start"]


def test_terminating_pods_count_beside_their_replacements() -> None:
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


def test_payer_function_assigns_pods_and_unassigned_pods_are_ignored() -> None:
    def by_label(pod: dict[str, Any]) -> str | None:
        return pod["metadata"].get("labels", {}).get("queue")

    watched = Watched(payer=by_label)
    watched.show("x", "9")
    assert (watched.alive(), watched.live.checks) == (0, 0)
    watched.show("y", metadata={"labels": {"queue": "b"}})
    watched.show("y")  # without the label the pod still counts for its first payer
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
def test_pod_requests_are_the_maximum_over_its_lifetime(spec: dict[str, Any], cpu: int) -> None:
    assert requests_of(spec, ["cpu", "memory"]) == {"cpu": cpu, "memory": 0}
