"""Control characters in names, messages and reasons: shown in a terminal as escapes, and never interpreted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from command_runner import Sluice

from admission.model.queues import ClusterQueue
from admission.model.workload import PodSet, Workload
from admission.store.audit_log import Author
from admission.store.records import Changes, State, Transition, WorkloadRecord
from admission.store.store import Store

EVIL = "\x1b]0;owned\x07 \x9b31m \x7f \u202eback\u2066 \x1b[2J\r\n\nNAME  all is well\u2028"
NOW = 1_750_000_000.0


@pytest.fixture(autouse=True)
async def evil(store: Store) -> None:
    """A workload and a ClusterQueue in which every free text is EVIL."""
    workload = Workload(
        uid="1", namespace="default", name="train", queue=EVIL, priority=0, created=NOW,
        pod_sets=(PodSet(name="main", count=1, requests={"cpu": 1000}),), user=EVIL, priority_class=EVIL,
    )  # fmt: skip
    record = WorkloadRecord(workload, State.PENDING, queued_at=NOW, reason=EVIL, message=EVIL)
    told = Transition("1", NOW, State.PENDING, EVIL, EVIL)
    await store.commit(Changes(workloads=(record,), transitions=(told,)), epoch=await store.lead("test"))
    manifest = {"metadata": {"name": "cq", "annotations": {"note": EVIL}}, "spec": {}}
    await store.queues.create(ClusterQueue.model_validate(manifest), author=Author(EVIL, reason=EVIL))


def is_harmless(text: str) -> bool:
    return all(character.isprintable() or character == "\n" for character in text)


@pytest.mark.parametrize(
    "command",
    [
        ("get", "workloads", "-o", "wide"),
        ("get", "clusterqueues", "-o", "wide"),
        ("describe", "workload/job-train-1"),
        ("describe", "clusterqueue/cq"),
        ("history", "train"),
        ("history", "clusterqueue/cq"),
        ("why", "train"),
        ("position", "train"),
        ("top", "users"),
        ("get", "workload", "no\x1bsuch"),
    ],
)
async def test_text_output_contains_no_control_characters(sluice: Sluice, command: tuple[str, ...]):
    names = [item["metadata"]["name"] for item in json.loads((await sluice("get", "wl", "-o", "json")).stdout)["items"]]
    done = await sluice(*(f"workload/{names[0]}" if word.startswith("workload/") else word for word in command))
    assert done.output.strip()
    assert is_harmless(done.output), ascii(done.output)
    assert "Traceback" not in done.output
    if command[0] != "why":  # `why` wraps its lines anywhere
        assert not any(line.startswith("NAME  all is well") for line in done.output.splitlines())


@pytest.mark.parametrize("what", ["workloads", "clusterqueues"])
async def test_json_and_yaml_output_escape_control_characters_without_loss(sluice: Sluice, what: str):
    as_json = (await sluice("get", what, "-o", "json")).stdout
    as_yaml = (await sluice("get", what, "-o", "yaml")).stdout
    assert is_harmless(as_json), ascii(as_json)
    assert is_harmless(as_yaml), ascii(as_yaml)
    assert json.loads(as_json) == yaml.safe_load(as_yaml)
    assert any(EVIL in text for text in texts(json.loads(as_json)))


def texts(document: Any) -> Iterator[str]:
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict | list):
        for value in document.values() if isinstance(document, dict) else document:
            yield from texts(value)
