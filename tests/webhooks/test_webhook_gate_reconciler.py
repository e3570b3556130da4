"""Reconciler of the gate: choice between webhook and admission policies, and changes from one to the other."""

from __future__ import annotations

import asyncio

import pytest
from policy_examples import GROUP, SLUICE, TEAMS, make_reconciler

from admission.kinds import all_kinds
from admission.sandbox import Sandbox
from webhooks.errors import PoliciesNotOffered
from webhooks.gate_reconciler import OVERLAP, RESYNC_INTERVAL
from webhooks.registration import Registration
from webhooks.scope import Scope

WEBHOOK = Registration(all_kinds(), "https://127.0.0.1:1", Scope((SLUICE,))).configuration(b"a bundle")


async def kinds_of(client):
    """Return the kinds of the gate's objects in the cluster."""
    resources = (await client.get(GROUP))["resources"]
    lists = [await client.get(f"{GROUP}/{row['name']}") for row in resources if "/" not in row["name"]]
    return {page["kind"].removesuffix("List") for page in lists if page["items"]}


WARNINGS = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
"""Of objects that are not queued, in each mode."""
POLICIES = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", *WARNINGS}


@pytest.mark.parametrize(
    ("minor", "mode", "managed", "wanted"),
    [
        (36, "webhooks", None, {"MutatingWebhookConfiguration", *WARNINGS}),
        (36, "policies", None, POLICIES),
        (36, "auto", None, POLICIES),
        (35, "auto", None, {"MutatingWebhookConfiguration", *WARNINGS}),
        (35, "auto", TEAMS, {"MutatingWebhookConfiguration", *WARNINGS}),
        (29, "auto", TEAMS, {"MutatingWebhookConfiguration"}),
    ],
)
async def test_gate_objects_depend_on_the_mode_and_the_kubernetes_version(
    users, connect_to, minor, mode, managed, wanted
):
    async with Sandbox(controllers=False, users=users, minor=minor) as sandbox, connect_to(sandbox, SLUICE) as client:
        gate = make_reconciler(client, mode, webhook=lambda: WEBHOOK, managed=managed)
        assert await gate.ensure()
        assert await kinds_of(client) == wanted
        assert not await gate.ensure()
        assert await gate.remove_obsolete() == []


async def test_policies_mode_is_an_error_before_kubernetes_1_36(users, connect_to):
    async with Sandbox(controllers=False, users=users, minor=35) as sandbox, connect_to(sandbox, SLUICE) as client:
        with pytest.raises(PoliciesNotOffered, match=r"Kubernetes from 1\.36 on: set admission to auto or webhooks"):
            await make_reconciler(client).ensure()


async def test_reconciler_without_webhook_configuration_removes_no_gate(sluice, gated):
    without = make_reconciler(sluice, "webhooks")
    assert not await without.ensure()
    assert await without.remove_obsolete() == []


async def no_refresh():
    return None


async def pauses_of(gate, count, refresh=no_refresh):
    """Run the reconciler, and return its first `count` + 1 pauses."""
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) > count:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await gate.run(refresh=refresh, sleep=sleep)
    return pauses


async def test_unexpected_error_in_a_check_does_not_end_the_reconciler(sluice, caplog):
    gate = make_reconciler(sluice)
    checks = 0

    async def refresh():
        nonlocal checks
        checks += 1
        if checks == 1:
            raise KeyError("tls.crt")

    await pauses_of(gate, 2, refresh)
    assert "KeyError: 'tls.crt'" in caplog.text
    assert await kinds_of(sluice) == POLICIES


async def test_old_gate_is_removed_after_the_overlap(sluice, gated):
    gate = make_reconciler(sluice, "webhooks", webhook=lambda: WEBHOOK, managed=None)
    assert (await pauses_of(gate, 1)) == [OVERLAP, OVERLAP]
    assert await kinds_of(sluice) == {"MutatingWebhookConfiguration", *POLICIES}
    await pauses_of(gate, 1)
    assert await kinds_of(sluice) == {"MutatingWebhookConfiguration", *WARNINGS}


async def test_replica_removes_the_old_gate_only_while_it_is_the_leader(sluice, gated):
    leaders = set()
    gate = make_reconciler(sluice, "webhooks", webhook=lambda: WEBHOOK, managed=None, is_leader=lambda: bool(leaders))
    await pauses_of(gate, 2)
    assert await kinds_of(sluice) == {"MutatingWebhookConfiguration", *POLICIES}
    leaders.add("this replica")
    await pauses_of(gate, 1)
    assert await kinds_of(sluice) == {"MutatingWebhookConfiguration", *WARNINGS}


JOB_AND_POD = all_kinds(frameworks=["batch/job", "pod"])
WEBHOOKS_OF_BOTH = Registration(JOB_AND_POD, "https://127.0.0.1:1", Scope((SLUICE,))).configuration(b"a bundle")


async def resources_of_webhooks(client):
    """Return the resources that the webhook is called for."""
    found = await client.get(f"{GROUP}/mutatingwebhookconfigurations/sluice")
    return {webhook["rules"][0]["resources"][0] for webhook in found["webhooks"]}


async def test_webhook_gates_jobs_until_the_policies_have_been_in_place_for_the_overlap(sluice):
    settings = {"webhook": lambda: WEBHOOKS_OF_BOTH, "managed": None, "kinds": JOB_AND_POD}
    await make_reconciler(sluice, "webhooks", **settings).ensure()
    policies, follower = (make_reconciler(sluice, is_leader=lambda leads=leads: leads, **settings) for leads in (1, 0))
    assert await policies.ensure()
    assert await resources_of_webhooks(sluice) == {"jobs", "pods"}
    assert await pauses_of(follower, 1) == [OVERLAP, RESYNC_INTERVAL]
    assert await resources_of_webhooks(sluice) == {"jobs", "pods"}
    assert await pauses_of(policies, 2) == [OVERLAP, OVERLAP, RESYNC_INTERVAL]
    assert await resources_of_webhooks(sluice) == {"pods"}
