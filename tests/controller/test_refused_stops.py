"""Changes that the API server refuses: user and log get the message, and the request is repeated."""

from __future__ import annotations

import asyncio

import pytest
from job_examples import is_gated, job, runs

from admission.api.application import create_app, listening
from admission.client import Sluice
from admission.controller.state.inbox import DelayEnded
from admission.controller.workloads.requests import MAX_BACKOFF

TOKEN = "a-token"
EVENTS = "/apis/events.k8s.io/v1/namespaces/team-a/events"


def denied(expression, reason):
    """A ValidatingAdmissionPolicy that denies a certain change of Jobs."""
    rules = [{"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["jobs"]}]
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": f"!({expression})", "message": "not on Fridays", "reason": reason}],
    }
    binding = {"policyName": "fridays", "validationActions": ["Deny"]}
    return {"metadata": {"name": "fridays"}, "spec": spec}, {"metadata": {"name": "fridays"}, "spec": binding}


STOPPED = "object.spec.suspend && !oldObject.spec.suspend"
GIVEN_BACK = "object.spec.suspend && has(oldObject.spec.template.spec.nodeSelector) && object != oldObject"
KINDS = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")


@pytest.mark.costly
@pytest.mark.parametrize(
    ("expression", "reason", "what"),
    [
        (STOPPED, "Forbidden", "stop it"),
        (STOPPED, "Invalid", "stop it"),
        (GIVEN_BACK + " && oldObject.spec.suspend", "Forbidden", "restore it"),
        (GIVEN_BACK + " && oldObject.spec.suspend", "Invalid", "restore it"),
    ],
)
async def test_denied_stop_or_restore_is_reported_and_retried(world, caplog, expression, reason, what):
    await world.begin()
    before = await world.submit(job("train", pods=4))
    await world.job("train", runs)
    for kind, obj in zip(KINDS, denied(expression, reason), strict=True):
        await world.user.create(kind, "", obj)
    await world.submit(job("next", pods=4))
    await world.order("train", held=True)

    async def told():
        record = await world.store.workloads.get("team-a", "train")
        return record if "not on Fridays" in record.message else None

    record = await world.eventually(told)
    assert (record.state, record.reason) == ("evicting", "OnHold")
    assert record.message.startswith(f"The API server refuses to {what}: ")
    assert record.message.endswith(". It keeps its quota, and that is tried again.")
    app = create_app(world.store, token=TOKEN, checks={}, controller=world.controller, leader=world.controller)
    async with listening(app, "127.0.0.1", 0) as url, Sluice(url, token=TOKEN) as client:
        why = await client.workloads.explain("train", namespace="team-a")
        assert f"OnHold: {record.message}" in why.sentences
        workload = await client.workloads.get("train", namespace="team-a")
    assert workload.conditions["Admitted"].message == record.message
    assert "It was put on hold" in workload.conditions["Evicted"].message

    async def has_event():
        notes = [each["note"] for each in (await world.client.get(EVENTS))["items"]]
        return record.message in notes

    await world.eventually(has_event)
    step = "stop" if what == "stop it" else "restore"
    assert f"cannot {step} team-a/train" in caplog.text
    await world.record("next", "pending")

    for kind in reversed(KINDS):
        await world.user.delete(kind, "", "fridays")
    held = await world.record("train", "pending", reason="OnHold")
    assert "Fridays" not in held.message
    assert (await world.job("train", is_gated))["spec"] == before["spec"]
    await world.job("next", runs)


async def test_refused_start_is_repeated_after_doubling_pauses_up_to_the_longest(world, monkeypatch):
    loop, pauses = asyncio.get_running_loop(), []
    call_later = loop.call_later

    def at_once(delay, callback, *arguments, **options):
        if arguments and isinstance(arguments[0], DelayEnded):
            pauses.append(delay)
            delay = 0
        return call_later(delay, callback, *arguments, **options)

    monkeypatch.setattr(loop, "call_later", at_once)
    refused = {"match": {"user": "sluice", "verb": "patch", "name": "a"}, "do": "error", "code": 500, "limit": 10}
    world.sandbox.faults.install({"rules": [refused]})
    await world.begin()
    await world.submit(job("a"))
    await world.job("a", runs)
    longest = [min(0.2 * 2**attempt, MAX_BACKOFF) for attempt in range(1, 11)]
    assert longest[-1] == MAX_BACKOFF
    assert len(pauses) == len(longest)
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses, longest, strict=True)), pauses
