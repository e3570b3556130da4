"""The gate as admission policies: responses of the API server for Jobs."""

from __future__ import annotations

import pytest
from policy_examples import GROUP, JOBS, KUEUE_QUEUE, QUEUE, SLUICE, SUBMITTED_BY, job, make_reconciler

from admission.cluster.errors import Forbidden, Invalid
from admission.kinds import all_kinds
from admission.kinds.added_labels import ADDED_LABELS
from admission.kinds.base import GATED_BY
from admission.sandbox import User
from admission.sandbox.apiserver.cel import MATCH_VARIABLES, compile_expression, evaluate
from admission.sandbox.apiserver.selectors import requirements_of
from webhooks.expressions import is_not_updated_by
from webhooks.gate_reconciler import GateReconciler
from webhooks.policies import gate_policies, policy_groups
from webhooks.registration import Registration
from webhooks.scope import Scope
from webhooks.validating_policies import MUTATING, VALIDATING

GROUPS = "sluice.dev/submitter-groups"


async def running(alice, sluice, name="j", **spec):
    """Create a queued Job, and start it as Sluice."""
    created = await alice.create(JOBS, job(name, {QUEUE: "q"}, **spec))
    assert created["spec"]["suspend"] is True
    return await sluice.patch(f"{JOBS}/{name}", {"spec": {"suspend": False}})


async def test_writing_the_policies_again_changes_nothing(sluice, gated):
    assert not await make_reconciler(sluice).ensure()
    assert await make_reconciler(sluice).remove_obsolete() == []


async def test_manual_changes_of_policies_are_reverted(sluice, gated):
    path = f"{GROUP}/mutatingadmissionpolicies/jobs.gate.sluice.dev"
    await sluice.patch(path, {"spec": {"failurePolicy": "Ignore"}})
    await sluice.delete(f"{GROUP}/validatingadmissionpolicybindings/jobs.keep.sluice.dev")
    assert await make_reconciler(sluice).ensure()
    assert (await sluice.get(path))["spec"]["failurePolicy"] == "Fail"
    assert not await make_reconciler(sluice).ensure()


@pytest.mark.parametrize("key", [QUEUE, KUEUE_QUEUE])
async def test_labelled_job_is_gated_and_its_submitter_recorded(alice, gated, key):
    created = await alice.create(JOBS, job("j", {key: "q"}, {SUBMITTED_BY: "forged"}))
    assert created["spec"]["suspend"] is True
    assert created["metadata"]["annotations"][SUBMITTED_BY] == "alice"


async def test_job_created_by_the_user_of_sluice_is_gated(sluice, gated):
    assert (await sluice.create(JOBS, job("j", {QUEUE: "q"})))["spec"]["suspend"] is True


@pytest.mark.parametrize(
    ("labels", "spec"), [({}, {}), ({QUEUE: "q"}, {"managedBy": "example.com/another", "suspend": False})]
)
async def test_unqueued_or_externally_managed_job_is_unchanged(alice, gated, labels, spec):
    created = await alice.create(JOBS, job("j", labels, **spec))
    assert created["spec"]["suspend"] is False
    assert "annotations" not in created["metadata"]
    await alice.patch(f"{JOBS}/j", {"spec": {"parallelism": 5}})


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"suspend": False}},
        {"spec": {"suspend": None}},
        {"spec": {"suspend": False}, "metadata": {"labels": {QUEUE: None}}},
    ],
)
async def test_user_cannot_start_a_waiting_job(alice, gated, change):
    await alice.create(JOBS, job("j", {QUEUE: "q"}))
    with pytest.raises(
        Forbidden, match=r"spec\.suspend: this Job is queued, and only Sluice starts it.* sluice why j -n default"
    ):
        await alice.patch(f"{JOBS}/j", change)


async def test_address_of_an_already_registered_webhook_is_found(sluice):
    here = make_reconciler(sluice, "webhooks")
    assert await here.registered_webhook() == ""
    configuration = Registration(all_kinds(), "https://127.0.0.1:1", Scope((SLUICE,))).configuration(b"")
    await make_reconciler(sluice, "webhooks", webhook=lambda: configuration, managed=None).ensure()
    assert (await here.registered_webhook()).startswith("https://127.0.0.1:1")


@pytest.mark.parametrize("name", ["o'brien", 'the "boss"', "a\\b", "Jörg"])
async def test_user_name_of_sluice_may_contain_special_characters(alice, sandbox, sluice, connect, name):
    scope = Scope((name,))
    await GateReconciler(sluice, "policies", all_kinds(), scope, None).ensure()
    await alice.create(JOBS, job("j", {QUEUE: "q"}))
    with pytest.raises(Forbidden):
        await alice.patch(f"{JOBS}/j", {"spec": {"suspend": False}})
    sandbox.add_user(User(name, groups=("system:masters",)))
    async with connect(name) as named:
        assert (await named.patch(f"{JOBS}/j", {"spec": {"suspend": False}}))["spec"]["suspend"] is False


async def test_waiting_job_that_another_user_moves_to_a_queue_gets_that_user_as_submitter(
    alice, sandbox, connect, gated
):
    sandbox.add_user(User("bob", groups=("system:masters",)))
    await alice.create(JOBS, job("j", {QUEUE: "q"}))
    left = await alice.patch(f"{JOBS}/j", {"metadata": {"labels": {QUEUE: None}, "annotations": {"a": "b"}}})
    assert left["spec"]["suspend"] is True
    for forged in ({}, {SUBMITTED_BY: "boss"}):
        moved = {"labels": {QUEUE: "p"}, "annotations": forged}
        async with connect("bob") as bob:
            joined = await bob.patch(f"{JOBS}/j", {"metadata": moved, "spec": {"suspend": False}})
        assert joined["spec"]["suspend"] is True
        assert joined["metadata"]["annotations"][SUBMITTED_BY] == "bob"
        await alice.patch(f"{JOBS}/j", {"metadata": {"labels": {QUEUE: None}}})


async def test_groups_of_the_submitter_are_recorded_and_cannot_be_forged(alice, sandbox, connect, gated):
    sandbox.add_user(User("bob", groups=("system:masters", "staff", "CN=ML,OU=Research")))
    forged = {GROUPS: "admins", SUBMITTED_BY: "bob"}
    async with connect("bob") as bob:
        created = await bob.create(JOBS, job("j", {QUEUE: "q"}, forged, suspend=True))
        assert created["metadata"]["annotations"] == {SUBMITTED_BY: "bob", GROUPS: "staff\nCN=ML,OU=Research"}
        with pytest.raises(Invalid, match=r"submitter-groups\]: only Sluice writes this annotation"):
            await bob.patch(f"{JOBS}/j", {"metadata": {"annotations": {GROUPS: "admins"}}})
    without = await alice.create(JOBS, job("k", {QUEUE: "q"}, {GROUPS: "admins", SUBMITTED_BY: "alice"}, suspend=True))
    assert without["metadata"]["annotations"] == {SUBMITTED_BY: "alice", GROUPS: ""}


@pytest.mark.parametrize("subresource", ["", "/status"])
@pytest.mark.parametrize("value", ["bob", None])
async def test_submitter_annotation_cannot_be_changed_or_removed(alice, gated, subresource, value):
    await alice.create(JOBS, job("j", {QUEUE: "q"}))
    with pytest.raises(Invalid, match=r"sluice\.dev/submitted-by\]: only Sluice writes this annotation"):
        await alice.patch(f"{JOBS}/j{subresource}", {"metadata": {"annotations": {SUBMITTED_BY: value}}})


@pytest.mark.parametrize("subresource", ["", "/status"])
@pytest.mark.parametrize(
    ("had", "asks", "refused"),
    [
        ("a.b/c,d.e/f", " d.e/f", False),
        ("a.b/c,d.e/f", " d.e/f,a.b/c", False),
        ("a.b/c", None, False),
        ("a.b/c", " ", False),
        ("a.b/c", "d.e/f", True),
        ("a.b/c", "a.b/c,d.e/f", True),
        ("", "a.b/c", True),
        (None, "a.b/c", True),
        (None, "no name", True),
    ],
)
async def test_controller_names_can_only_be_removed_after_the_creation(alice, gated, subresource, had, asks, refused):
    made = job("j", {QUEUE: "q"})
    made["metadata"]["annotations"] = {} if had is None else {GATED_BY: had}
    await alice.create(JOBS, made)
    change = {"metadata": {"annotations": {GATED_BY: asks}}}
    if refused:
        with pytest.raises(Forbidden, match="no controllers can be added after the creation"):
            await alice.patch(f"{JOBS}/j{subresource}", change)
    else:
        stored = await alice.patch(f"{JOBS}/j{subresource}", change)
        assert stored["metadata"]["annotations"].get(GATED_BY) == asks


@pytest.mark.parametrize("subresource", ["", "/status"])
@pytest.mark.parametrize("labels", [{QUEUE: "p"}, {QUEUE: None}, {KUEUE_QUEUE: "p"}])
async def test_queue_of_a_running_job_cannot_be_changed(alice, sluice, gated, subresource, labels):
    await running(alice, sluice)
    with pytest.raises(Forbidden, match="the queue of a running Job cannot be changed; suspend it before you move it"):
        await alice.patch(f"{JOBS}/j{subresource}", {"metadata": {"labels": labels}})
    await alice.patch(f"{JOBS}/j", {"metadata": {"labels": {"another": "label"}}})


async def test_running_job_without_queue_cannot_join_a_queue(alice, gated):
    await alice.create(JOBS, job("j"))
    with pytest.raises(Forbidden, match="suspend it before you move it"):
        await alice.patch(f"{JOBS}/j", {"metadata": {"labels": {QUEUE: "q"}}})


@pytest.mark.parametrize("spec", [{"parallelism": 3}, {"parallelism": 3, "completions": 3}])
async def test_running_job_cannot_get_more_pods(alice, sluice, gated, spec):
    indexed = {"completionMode": "Indexed", "completions": 2} if "completions" in spec else {}
    await running(alice, sluice, parallelism=2, **indexed)
    with pytest.raises(Forbidden, match="a running Job gets no more pods than it has; suspend it in the same request"):
        await alice.patch(f"{JOBS}/j", {"spec": spec})
    await alice.patch(f"{JOBS}/j", {"spec": {"parallelism": 1}})
    assert (await alice.patch(f"{JOBS}/j", {"spec": {**spec, "suspend": True}}))["spec"]["suspend"] is True


async def test_pod_replacement_policy_of_a_running_job_cannot_be_changed(alice, sluice, gated):
    await running(alice, sluice, podReplacementPolicy="Failed")
    with pytest.raises(Forbidden, match="podReplacementPolicy: Sluice sets it to Failed"):
        await alice.patch(f"{JOBS}/j", {"spec": {"podReplacementPolicy": "TerminatingOrFailed"}})


async def test_an_empty_queue_name_is_refused(alice, gated):
    says = r"metadata\.labels\[sluice\.dev/queue-name\]: is empty: name what it is for"
    with pytest.raises(Invalid, match=says):
        await alice.create(JOBS, job("j", {QUEUE: ""}))
    await alice.create(JOBS, job("j", {QUEUE: "q"}))
    with pytest.raises(Invalid, match=says):
        await alice.patch(f"{JOBS}/j", {"metadata": {"labels": {QUEUE: ""}}})


async def test_existing_empty_queue_name_does_not_prevent_updates(alice, sluice):
    await alice.create(JOBS, job("j", {QUEUE: ""}, suspend=True))
    await make_reconciler(sluice).ensure()
    await alice.patch(f"{JOBS}/j", {"metadata": {"labels": {"another": "label"}}})


async def test_queued_job_that_the_mutating_policy_missed_is_refused(alice, sluice, gated):
    await sluice.delete(f"{GROUP}/mutatingadmissionpolicybindings/jobs.gate.sluice.dev")
    with pytest.raises(Forbidden, match="this Job is queued, and only Sluice starts it"):
        await alice.create(JOBS, job("j", {QUEUE: "q"}))


def policies(name):
    """Return the spec of a policy for Jobs."""
    (found,) = (
        each["spec"]
        for each in gate_policies(policy_groups(all_kinds())[0], Scope((SLUICE,)))
        if each["kind"] in (MUTATING, VALIDATING) and each["metadata"]["name"] == name
    )
    return found


def compiled(spec):
    (condition,) = spec["matchConditions"]
    return compile_expression(condition["expression"], MATCH_VARIABLES)


def test_match_conditions_begin_with_the_user_check_and_skip_gated_jobs():
    """API servers evaluate all match conditions: each policy has only one, which begins with the cheapest operand."""
    hooks = Registration(all_kinds(), "https://127.0.0.1:1", Scope((SLUICE,))).configuration(b"")["webhooks"]
    of_updates = [hook for hook in hooks if "UPDATE" in hook["rules"][0]["operations"]]
    for each in (policies("jobs.join.gate.sluice.dev"), policies("jobs.keep.sluice.dev"), *of_updates):
        (condition,) = each["matchConditions"]
        assert condition["expression"].startswith(f"({is_not_updated_by([SLUICE])}) && ")
    keeps = compiled(policies("jobs.keep.sluice.dev"))
    for labels, suspend, is_looked_at in (
        ({QUEUE: "q"}, True, False),
        ({QUEUE: "q"}, False, True),
        ({QUEUE: ""}, True, True),
    ):
        assert evaluate(keeps, creation(job("j", labels, suspend=suspend))) is is_looked_at


def creation(obj):
    return {"object": obj, "oldObject": None, "request": {"operation": "CREATE", "userInfo": {"username": "alice"}}}


async def test_gate_policy_does_not_match_a_gated_job(alice, sandbox):
    """An API server evaluates all mutating policies again after one of them has changed the object."""
    gates = compiled(policies("jobs.gate.sluice.dev"))
    new = await alice.create(JOBS, job("new", {QUEUE: "q"}), params={"dryRun": "All"})
    assert evaluate(gates, creation(new))
    await GateReconciler(alice, "policies", all_kinds(), Scope((SLUICE,)), None).ensure()
    gated = await alice.create(JOBS, job("gated", {QUEUE: "q"}))
    assert not evaluate(gates, creation(gated))
    started = {**gated["spec"], "suspend": False}
    assert evaluate(gates, creation({**gated, "spec": started}))
    unnoted = {**gated["metadata"], "annotations": {}}
    assert evaluate(gates, creation({**gated, "metadata": unnoted}))


@pytest.mark.parametrize(
    ("old", "new", "is_looked_at"),
    [
        ({QUEUE: "q"}, {QUEUE: "q", "another": "label"}, False),
        ({KUEUE_QUEUE: "q"}, {KUEUE_QUEUE: "p"}, False),
        ({}, {QUEUE: "q"}, True),
        ({"another": "label"}, {KUEUE_QUEUE: "q"}, True),
    ],
)
def test_join_policy_selects_only_updates_that_may_join_a_queue(old, new, is_looked_at):
    selector = requirements_of(policies("jobs.join.gate.sluice.dev")["matchConstraints"]["objectSelector"])
    assert any(all(each.holds(labels) for each in selector) for labels in (old, new)) is is_looked_at


@pytest.mark.parametrize("subresource", ["", "/status"])
async def test_submitter_cannot_be_forged_by_joining_past_the_mutating_policy(alice, sluice, subresource):
    """The mutating policy matches neither objects that had an empty queue label nor requests for the status."""
    await alice.create(JOBS, job("j", {} if subresource else {QUEUE: ""}, {SUBMITTED_BY: "bob"}, suspend=True))
    await make_reconciler(sluice).ensure()
    labels = {"labels": {QUEUE: "q"}}
    for forged in ({}, {"annotations": {SUBMITTED_BY: "boss"}}):
        with pytest.raises(Invalid, match=r"sluice\.dev/submitted-by\]: only Sluice writes this annotation"):
            await alice.patch(f"{JOBS}/j{subresource}", {"metadata": {**labels, **forged}})
    own = {**labels, "annotations": {SUBMITTED_BY: "alice"}}
    if not subresource:
        with pytest.raises(Forbidden, match="this Job is queued, and only Sluice starts it"):
            await alice.patch(f"{JOBS}/j", {"metadata": own, "spec": {"suspend": False}})
    joined = await alice.patch(f"{JOBS}/j{subresource}", {"metadata": own})
    assert joined["spec"]["suspend"] is True


async def test_excluded_namespaces_are_left_alone(alice, gated):
    created = await alice.create(JOBS.replace("default", "kube-system"), job("j", {QUEUE: "q"}))
    assert created["spec"]["suspend"] is False


# ---------------------------------------------------------------------- managed namespaces

TEAM_JOBS = JOBS.replace("default", "team-a")


@pytest.mark.parametrize("labels", [{}, {"another": "label"}])
async def test_job_without_queue_label_in_a_managed_namespace_gets_the_default_queue(alice, gated, labels):
    created = await alice.create(TEAM_JOBS, job("j", labels))
    assert created["spec"]["suspend"] is True
    assert created["metadata"]["labels"] == {**labels, QUEUE: "default"}
    assert created["metadata"]["annotations"] == {SUBMITTED_BY: "alice", ADDED_LABELS: f"{QUEUE}=default"}


async def test_job_with_queue_label_in_a_managed_namespace_keeps_its_queue(alice, gated):
    created = await alice.create(TEAM_JOBS, job("j", {KUEUE_QUEUE: "q"}))
    assert created["metadata"]["labels"] == {KUEUE_QUEUE: "q"}
    assert created["spec"]["suspend"] is True


@pytest.mark.parametrize("subresource", ["", "/status"])
@pytest.mark.parametrize("value", [None, ""])
async def test_job_in_a_managed_namespace_can_change_but_not_leave_its_queue(alice, gated, value, subresource):
    await alice.create(TEAM_JOBS, job("j"))
    with pytest.raises((Forbidden, Invalid), match=r"everything in this namespace is queued|is empty: name what"):
        await alice.patch(f"{TEAM_JOBS}/j{subresource}", {"metadata": {"labels": {QUEUE: value}}})
    moved = await alice.patch(f"{TEAM_JOBS}/j", {"metadata": {"labels": {QUEUE: None, KUEUE_QUEUE: "q"}}})
    assert moved["metadata"]["labels"] == {KUEUE_QUEUE: "q"}


async def test_user_cannot_start_an_ungated_job_in_a_managed_namespace(alice, sluice):
    await alice.create(TEAM_JOBS, job("j", suspend=True))
    await make_reconciler(sluice).ensure()
    with pytest.raises(Forbidden, match="Sluice starts it"):
        await alice.patch(f"{TEAM_JOBS}/j", {"spec": {"suspend": False}})
    assert not (await sluice.patch(f"{TEAM_JOBS}/j", {"spec": {"suspend": False}}))["spec"]["suspend"]


async def test_externally_managed_job_in_a_managed_namespace_is_unchanged(alice, gated):
    created = await alice.create(TEAM_JOBS, job("j", managedBy="example.com/another"))
    assert created["spec"]["suspend"] is False


async def test_changed_selector_of_managed_namespaces_replaces_the_former(alice, sluice, gated):
    other = ({"key": "team", "operator": "In", "values": ["b"]},)
    assert await make_reconciler(sluice, managed=other).ensure()
    assert (await alice.create(TEAM_JOBS, job("j")))["spec"]["suspend"] is False


async def test_policies_of_managed_namespaces_are_removed_when_switched_off(alice, sluice, gated):
    assert not await make_reconciler(sluice, managed=None).ensure()
    removed = await make_reconciler(sluice, managed=None).remove_obsolete()
    assert removed == [
        "MutatingAdmissionPolicy jobs.managed.gate.sluice.dev",
        "MutatingAdmissionPolicyBinding jobs.managed.gate.sluice.dev",
        "ValidatingAdmissionPolicy jobs.managed.keep.sluice.dev",
        "ValidatingAdmissionPolicyBinding jobs.managed.keep.sluice.dev",
    ]
    assert (await alice.create(TEAM_JOBS, job("j")))["spec"]["suspend"] is False
