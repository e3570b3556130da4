"""Admission policies: files and responses recorded on a real API server, and further behaviour of the sandbox."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest
import yaml

from admission.sandbox import Sandbox, User

RECORDED = Path(__file__).parent / "policies"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
GROUP = "/apis/admissionregistration.k8s.io/v1"
MERGE = {"Content-Type": "application/merge-patch+json"}
SLUICE = "system:serviceaccount:sluice-system:sluice"
SUBMITTED_BY = "sluice.dev/submitted-by"
USERS = {
    "admin-token": User("admin", "1", ("system:masters", "system:authenticated")),
    "alice-token": User("alice", "2", ("system:masters", "system:authenticated")),
    "bob-token": User("bob", "4", ("system:masters", "system:authenticated")),
    "sluice-token": User(SLUICE, "3", ("system:masters", "system:authenticated")),
}


@pytest.fixture
async def sandbox():
    async with Sandbox(controllers=False, users=USERS) as running:
        yield running


@pytest.fixture
async def http(sandbox):
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=sandbox.ca_pem))
    async with aiohttp.ClientSession(sandbox.url, connector=connector) as session:
        yield session


@pytest.fixture
def ask(http):
    async def send(method, path, body=None, *, token="alice-token"):
        headers = {"Authorization": f"Bearer {token}"}
        if method == "PATCH":
            headers |= MERGE
        async with http.request(method, path, json=body, headers=headers) as response:
            return response.status, await response.json()

    return send


def job(name, *, queue="", **annotations):
    labels = {"sluice.dev/queue-name": queue} if queue else {}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"metadata": metadata, "spec": {"template": {"spec": pod}}}


def documents_of(path):
    return list(yaml.load_all(path.read_text(), yaml.CSafeLoader))


async def created(ask, document):
    kind = document["kind"].lower()
    plural = f"{kind}s" if kind.endswith("binding") else f"{kind[:-1]}ies"
    return await ask("POST", f"{GROUP}/{plural}", document)


@pytest.fixture(params=["gate-apply-configuration.yaml", "gate-json-patch.yaml"])
async def recorded(request, ask):
    """Install one of two equivalent policy files that were tried on a real API server."""
    for document in documents_of(RECORDED / request.param):
        status, answer = await created(ask, document)
        assert status == 201, answer


async def test_labelled_job_is_gated_and_its_submitter_recorded(ask, recorded):
    status, got = await ask("POST", JOBS, job("j1", queue="q", **{SUBMITTED_BY: "forged", "other": "kept"}))
    assert (status, got["spec"]["suspend"]) == (201, True)
    assert got["metadata"]["annotations"] == {SUBMITTED_BY: "alice", "other": "kept"}


async def test_job_without_queue_label_is_not_gated_or_annotated(ask, recorded):
    status, got = await ask("POST", JOBS, job("j1"))
    assert (status, got["spec"]["suspend"]) == (201, False)
    assert "annotations" not in got["metadata"]


async def test_a_user_cannot_start_a_waiting_job(ask, recorded):
    await ask("POST", JOBS, job("j1", queue="q"))
    status, answer = await ask("PATCH", f"{JOBS}/j1", {"spec": {"suspend": False}})
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == (
        "jobs.batch \"j1\" is forbidden: ValidatingAdmissionPolicy 'jobs.keep.sluice.dev' with binding "
        "'jobs.keep.sluice.dev' denied request: this Job waits in a queue: Sluice starts it when there is quota; "
        "sluice why j1 -n default"
    )


async def test_user_cannot_change_the_submitted_by_annotation(ask, recorded):
    await ask("POST", JOBS, job("j1", queue="q"))
    status, answer = await ask("PATCH", f"{JOBS}/j1", {"metadata": {"annotations": {SUBMITTED_BY: "bob"}}})
    assert (status, answer["reason"]) == (422, "Invalid")
    (cause,) = answer["details"]["causes"]  # kubectl shows the causes of an Invalid response
    assert cause["message"] == (
        "ValidatingAdmissionPolicy 'jobs.keep.sluice.dev' with binding 'jobs.keep.sluice.dev' denied request: "
        "sluice.dev/submitted-by is written by Sluice alone"
    )


async def test_a_waiting_job_may_leave_its_queue_and_stays_suspended(ask, recorded):
    await ask("POST", JOBS, job("j1", queue="q"))
    labels = {"metadata": {"labels": {"sluice.dev/queue-name": None}}}
    status, got = await ask("PATCH", f"{JOBS}/j1", labels)
    assert (status, got["spec"]["suspend"]) == (200, True)


async def test_sluice_may_start_a_waiting_job(ask, recorded):
    await ask("POST", JOBS, job("j1", queue="q"))
    status, got = await ask("PATCH", f"{JOBS}/j1", {"spec": {"suspend": False}}, token="sluice-token")
    assert (status, got["spec"]["suspend"]) == (200, False)


async def test_job_in_excluded_namespace_is_not_gated(ask, recorded):
    status, got = await ask("POST", JOBS.replace("default", "kube-system"), job("j1", queue="q"))
    assert (status, got["spec"]["suspend"]) == (201, False)


def rules(*operations):
    return [{"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": list(operations), "resources": ["jobs"]}]


def validating(name, *validations, **spec):
    return {
        "kind": "ValidatingAdmissionPolicy",
        "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": rules("CREATE")},
            "validations": list(validations),
            **spec,
        },
    }


def bound(name, *actions, **spec):
    return {
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": list(actions), **spec},
    }


async def installed(ask, *documents):
    for document in documents:
        status, answer = await created(ask, document)
        assert status == 201, answer


async def test_policy_without_binding_has_no_effect(ask):
    await installed(ask, validating("p", {"expression": "false"}))
    assert (await ask("POST", JOBS, job("j1")))[0] == 201


async def test_match_resources_of_a_binding_narrow_its_policy(ask):
    labelled = {"objectSelector": {"matchLabels": {"sluice.dev/queue-name": "q"}}}
    await installed(ask, validating("p", {"expression": "false"}), bound("p", "Deny", matchResources=labelled))
    assert (await ask("POST", JOBS, job("j1")))[0] == 201
    status, answer = await ask("POST", JOBS, job("j2", queue="q"))
    assert status == 422
    assert answer["message"].endswith("denied request: failed expression: false")


async def test_policy_bound_with_warn_returns_a_warning(ask, http):
    await installed(ask, validating("p", {"expression": "false", "message": "no"}), bound("p", "Warn"))
    headers = {"Authorization": "Bearer alice-token"}
    async with http.post(JOBS, json=job("j1"), headers=headers) as response:
        assert response.status == 201
        assert response.headers["Warning"] == (
            "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': no\""
        )


@pytest.mark.parametrize(("failure_policy", "status"), [("Fail", 422), ("Ignore", 201)])
async def test_expression_error_denies_unless_failure_policy_is_ignore(ask, failure_policy, status):
    policy = validating("p", {"expression": "object.spec.nothing == 1"}, failurePolicy=failure_policy)
    await installed(ask, policy, bound("p", "Deny"))
    assert (await ask("POST", JOBS, job("j1")))[0] == status


async def test_variables_message_expression_and_match_conditions_are_evaluated(ask):
    policy = validating(
        "p",
        {
            "expression": "variables.short || !variables.queued",
            "messageExpression": "'too long: ' + string(variables.n)",
        },
        variables=[
            {"name": "n", "expression": "size(object.metadata.name)"},
            {"name": "short", "expression": "variables.n < 5"},
            {"name": "queued", "expression": "'sluice.dev/queue-name' in object.metadata.labels"},
        ],
        matchConditions=[{"name": "not-bob", "expression": "request.userInfo.username != 'bob'"}],
    )
    await installed(ask, policy, bound("p", "Deny"))
    assert (await ask("POST", JOBS, job("j1")))[0] == 201
    assert (await ask("POST", JOBS, job("j-long", queue="q")))[1]["message"].endswith("denied request: too long: 6")
    assert (await ask("POST", JOBS, job("j-long", queue="q"), token="bob-token"))[0] == 201


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("(object.spec.nothing == 1) && (false)", 201),
        ("(false) && (object.spec.nothing == 1)", 201),
        ("(true) && (object.spec.nothing == 1)", 422),
        ("true && object.metadata.name != 'a && (b' && [1, 2].exists(n, n > 0 && n > 1)", 422),
        ("false && true || true", 422),
        ("true && false ? true : false", 201),
    ],
)
async def test_conjunction_is_false_if_one_operand_is_whatever_errors_the_others_have(ask, condition, status):
    policy = validating("p", {"expression": "false"}, matchConditions=[{"name": "c", "expression": condition}])
    await installed(ask, policy, bound("p", "Deny"))
    assert (await ask("POST", JOBS, job("j1")))[0] == status


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (validating("p", {"expression": "nothing == 1"}), "spec.validations[0].expression"),
        (validating("p", {"expression": "object.("}), "spec.validations[0].expression"),
        (validating("p", {"expression": "true", "reason": "NotFound"}), "spec.validations[0].reason"),
        (validating("p"), "spec.validations"),
        (bound("p", "Deny", "Warn"), "spec.validationActions"),
        (bound("p"), "spec.validationActions"),
    ],
)
async def test_invalid_policy_or_binding_is_rejected_with_the_field_name(ask, document, field):
    status, answer = await created(ask, document)
    assert status == 422
    assert field in [cause["field"] for cause in answer["details"]["causes"]]


async def test_policy_takes_effect_after_the_admission_delay():
    async with Sandbox(controllers=False, users=USERS, admission_delay=0.05) as sandbox:
        client = sandbox.local("alice")
        await client.create("validatingadmissionpolicies", "", validating("p", {"expression": "false"}))
        await client.create("validatingadmissionpolicybindings", "", bound("p", "Deny"))
        number = 0
        with pytest.raises(Exception, match="denied request"):  # noqa: PT012  until then Jobs are created
            while True:
                await client.create("jobs", "default", job(f"j{number}"))
                number += 1
                await asyncio.sleep(0)
        assert number > 0


@pytest.mark.parametrize(
    ("minor", "served"),
    [
        (36, {"mutatingadmissionpolicies", "validatingadmissionpolicies"}),
        (35, {"validatingadmissionpolicies"}),
        (29, set()),
    ],
)
async def test_served_policy_kinds_depend_on_the_minor_version(minor, served):
    async with Sandbox(controllers=False, minor=minor) as sandbox:
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=sandbox.ca_pem))
        headers = {"Authorization": "Bearer admin-token"}
        async with aiohttp.ClientSession(sandbox.url, connector=connector, headers=headers) as session:
            async with session.get(GROUP) as response:
                names = {row["name"] for row in (await response.json())["resources"]}
            assert {name for name in names if name.endswith("policies")} == served
            async with session.get("/version") as response:
                assert (await response.json())["minor"] == str(minor)
