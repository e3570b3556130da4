"""An outage of the gate, the emergency switch, and an uninstall that leaves the cluster as it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import helm_python as helm
import pytest
import yaml
from chart import CHART, NAMESPACE, Object
from click.testing import CliRunner
from custom_kinds import TRAINING_RUN_FORM, definition

from admission.cli.configuration.integrations import IntegrationsSettings
from admission.cli.main import main
from admission.cli.serve.aggregation import Aggregation
from admission.cluster.client import Client
from admission.cluster.errors import ClusterError, NameTaken
from admission.kinds import all_kinds, parse_form
from admission.sandbox.apiserver.requests import User
from admission.sandbox.sandbox import Sandbox
from webhooks.certificate_sharing import refresh_shared
from webhooks.certificates import Certificates
from webhooks.gate_reconciler import GateReconciler, Mode
from webhooks.registration import Registration
from webhooks.scope import Scope

JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox(controllers=False) as opened:
        admin = opened.local("admin")
        await admin.create("namespaces", "", {"metadata": {"name": NAMESPACE}})
        opened.write_kubeconfig(tmp_path / "kubeconfig")
        yield opened


@pytest.fixture
async def client(sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[Client]:
    async with Client.from_kubeconfig(str(tmp_path / "kubeconfig")) as opened:
        yield opened


@pytest.fixture
def sluice(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that runs a command of `sluice` on the sandbox and returns exit code and output."""

    async def run(*arguments: str) -> tuple[int, str]:
        flags = (f"--kubeconfig={tmp_path / 'kubeconfig'}",)
        done = await asyncio.to_thread(CliRunner(catch_exceptions=False).invoke, main, [*arguments, *flags])
        return done.exit_code, done.output

    return run


def job(name: str) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "pause"}]}
    return {"metadata": {"name": name}, "spec": {"template": {"spec": pod}}}


def unreachable_gate(
    client: Client,
    mode: Mode = "webhooks",
    *,
    managed: tuple[Object, ...] | None = (),
    ca: bytes = b"",
    frameworks: tuple[str, ...] = ("batch/job",),
    annotations: tuple[str, ...] = (),
) -> GateReconciler:
    """Return a GateReconciler whose webhook URL refuses connections."""
    kinds = all_kinds(kueue_labels=True, excluded_namespaces=("kube-system", NAMESPACE), frameworks=frameworks)
    scope = Scope(("system:serviceaccount:sluice-system:sluice",), ("kube-system", NAMESPACE), managed,
                  IntegrationsSettings(queue_annotations=annotations).queue_rules())  # fmt: skip
    registration = Registration(kinds.gated, "https://127.0.0.1:9", scope)
    return GateReconciler(client, mode, kinds.gated, scope, lambda: registration.configuration(ca))


async def create(client: Client, name: str, *, namespace: str = "default", labels: Object | None = None) -> str:
    """Create a Job; return the error, or an empty string."""
    body = job(name)
    body["metadata"]["labels"] = labels or {}
    try:
        await client.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", body)
    except ClusterError as error:
        return str(error)
    return ""


def states(state: str) -> str:
    """Return what `sluice gate` prints if all objects are in a state: the webhooks, and the policies that warn."""
    told = (f"ValidatingAdmissionPolicyBinding {name}.told.sluice.dev" for name in ("kueue.x-k8s.io", "sluice.dev"))
    return "".join(f"{name}: {state}\n" for name in ("MutatingWebhookConfiguration sluice", *told))


async def test_gate_outage_rejects_only_queued_jobs_until_the_gate_is_switched_off(client, sluice, sandbox):
    queued = {"sluice.dev/queue-name": "lq"}
    reconciler = unreachable_gate(client, managed=None, ca=sandbox.ca_pem.encode())
    await reconciler.ensure()
    assert 'failed calling webhook "jobs.new-1.sluice.dev"' in await create(client, "labelled", labels=queued)
    assert await create(client, "unlabelled") == ""
    for namespace in ("kube-system", NAMESPACE):
        assert await create(client, "of-the-system", namespace=namespace, labels=queued) == ""
    assert await sluice("gate", "status") == (0, states("on"))
    assert await sluice("gate", "off") == (0, states("off"))
    assert await create(client, "labelled", labels=queued) == ""
    assert await sluice("gate", "off") == (0, "nothing to do: the gate is off already\n")
    assert await sluice("gate", "status") == (1, states("off"))
    await reconciler.ensure()  # as at the start of Sluice
    assert await create(client, "another", labels=queued) == ""
    assert await sluice("gate", "on") == (0, states("on"))
    assert "failed calling webhook" in await create(client, "third", labels=queued)
    assert await reconciler.ensure() is False, "it is as Sluice would have it"


async def test_foreign_webhook_configuration_named_sluice_is_not_changed_or_deleted(client):
    webhook = {
        "name": "doors.water.example",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [],
    }
    paths = []
    for kind in ("Mutating", "Validating"):
        collection = f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}webhookconfigurations"
        body = {"kind": f"{kind}WebhookConfiguration", "metadata": {"name": "sluice"}, "webhooks": [webhook]}
        await client.create(collection, body)
        paths.append(f"{collection}/sluice")
    theirs = [await client.get(path) for path in paths]
    with pytest.raises(NameTaken, match="MutatingWebhookConfiguration sluice exists already, and is not Sluice's"):
        await unreachable_gate(client, managed=None, ca=b"CA").ensure()
    policies = unreachable_gate(client, "policies")
    await policies.ensure()
    assert await policies.remove_obsolete() == []
    assert [await client.get(path) for path in paths] == theirs


async def test_switching_the_gate_off_or_on_is_logged_once(client, sluice, caplog):
    reconciler = unreachable_gate(client, managed=None, ca=b"CA")
    for switch, says in (
        ("on", ""),
        ("off", "switched off (`sluice gate off`) and left so: MutatingWebhookConfiguration sluice, "),
        ("on", "switched on again: MutatingWebhookConfiguration sluice, "),
    ):
        await reconciler.ensure()
        await sluice("gate", switch)
        caplog.clear()
        for _ in range(3):
            assert await reconciler.ensure() is False
        assert says in caplog.text
        assert len(caplog.records) == bool(says)


async def test_gate_command_switches_admission_policies_off_and_on(client, sluice):
    reconciler = unreachable_gate(client, "policies")
    await reconciler.ensure()
    code, output = await sluice("gate", "off")
    assert (code, output.count(": off\n")) == (0, 7)
    await create(client, "a")
    assert not (await client.get(f"{JOBS}/a"))["spec"].get("suspend")
    await sluice("gate", "on")
    await create(client, "b", labels={"sluice.dev/queue-name": "lq"})
    assert (await client.get(f"{JOBS}/b"))["spec"]["suspend"] is True
    assert await reconciler.ensure() is False


async def test_gate_off_without_a_gate_fails_with_an_explanation(client, sluice):
    del client
    code, output = await sluice("gate", "off")
    assert (code, output) == (
        1,
        "error: no gate found: Sluice has not registered one in this cluster\n",
    )


def everything(sandbox: Sandbox) -> dict[tuple[str, str, str], Object]:
    found = {}
    for (_, plural), collection in sandbox.registry.store.collections.items():
        for stored in collection.versions():
            metadata = stored.obj["metadata"]
            if plural not in ("events", "leases") or "sluice" in metadata["name"]:
                found[plural, metadata.get("namespace", ""), metadata["name"]] = stored.obj
    return found


async def installed(client: Client, folder: Path) -> None:
    """Create all objects that Sluice registers in a cluster."""
    await unreachable_gate(client, "policies").ensure()
    await unreachable_gate(client).ensure()
    await Aggregation(NAMESPACE, "sluice-external", 8443, "host.example").ensure(client, b"CA")
    await Aggregation(NAMESPACE, "sluice-api", 443).ensure(client, b"CA")
    certificates = Certificates(folder / "certificates", ["localhost"], now=lambda: datetime.now(UTC))
    await refresh_shared(client, certificates, namespace=NAMESPACE, name="sluice-webhook-certificates")
    for namespace, name in ((NAMESPACE, "sluice"), ("kube-system", "sluice-database")):
        lease = {"metadata": {"name": name}, "spec": {"holderIdentity": ""}}
        await client.create(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", lease)


@pytest.mark.costly
async def test_an_uninstall_leaves_the_cluster_as_it_was(client, sluice, sandbox, tmp_path):
    admin = sandbox.local("admin")
    await admin.create("jobs", "default", job("of-before"))
    before = everything(sandbox)
    gated = job("waiting")
    gated["metadata"]["annotations"] = {"sluice.dev/submitted-by": "alice"}
    gated["spec"]["suspend"] = True
    await admin.create("jobs", "default", gated)
    await installed(client, tmp_path)
    code, plan = await sluice("uninstall")
    assert (code, plan.splitlines()[-1]) == (0, "nothing was changed; use --yes to carry out the plan")
    assert everything(sandbox).keys() > before.keys()
    code, output = await sluice("uninstall", "--restore", "--yes")
    assert (code, output.splitlines()[-1]) == (0, "done")
    assert "delete mutatingwebhookconfigurations/sluice" in output
    after = everything(sandbox)
    waiting = after.pop(("jobs", "default", "waiting"))
    assert after == before
    assert waiting["spec"]["suspend"] is False
    assert "sluice.dev/submitted-by" not in (waiting["metadata"].get("annotations") or {})


GIVEN, QUEUE = "sluice.dev/given-labels", "sluice.dev/queue-name"


@pytest.mark.parametrize("flags", [(), ("--restore",)])
async def test_uninstall_removes_queue_labels_set_by_the_gate_and_keeps_those_of_users(client, sluice, flags):
    yunikorn = {"yunikorn.apache.org/queue": "y"}
    await unreachable_gate(client, "policies", annotations=(*yunikorn,)).ensure()
    gated = {
        "given": ({}, yunikorn, {}),
        "own": ({QUEUE: "y"}, yunikorn, {QUEUE: "y"}),
        "moved": ({}, yunikorn, {QUEUE: "other"}),
        "forged": ({QUEUE: "y", "app": "a"}, {GIVEN: f"app=a,{QUEUE}=x"}, {QUEUE: "y", "app": "a"}),
        "odd": ({QUEUE: "y"}, {GIVEN: ",=,," + "x" * 1000}, {QUEUE: "y"}),
    }
    for name, (labels, noted, _) in gated.items():
        body = job(name)
        body["metadata"] |= {"labels": labels, "annotations": noted}
        await client.create(JOBS, body)
    await client.patch(f"{JOBS}/moved", {"metadata": {"labels": {QUEUE: "other"}}})
    found = {each["metadata"]["name"]: each for each in (await client.get(JOBS))["items"]}
    assert all(each["spec"]["suspend"] for each in found.values()), "a note lets nobody in"
    assert found["given"]["metadata"]["annotations"][GIVEN] == f"{QUEUE}=y"
    assert GIVEN not in found["own"]["metadata"]["annotations"]
    assert (await sluice("uninstall", "--yes", *flags))[0] == 0
    for name, (_, noted, labels) in gated.items():
        left = await client.get(f"{JOBS}/{name}")
        assert left["spec"]["suspend"] is not bool(flags)
        assert {key: value for key, value in left["metadata"]["labels"].items() if key in (QUEUE, "app")} == labels
        assert left["metadata"].get("annotations", {}) == {key: noted[key] for key in noted if key != GIVEN}


def waiting(kind: str, name: str, spec: Object) -> Object:
    """Return an object that Sluice has suspended."""
    metadata = {"name": name, "annotations": {"sluice.dev/submitted-by": "alice", "mine": "stays"}}
    versions = {"PyTorchJob": "kubeflow.org/v1", "JobSet": "jobset.x-k8s.io/v1alpha2"}
    return {"apiVersion": versions[kind], "kind": kind, "metadata": metadata, "spec": spec}


async def test_uninstall_of_kind_deployment_is_refused_while_enabled_and_changes_nothing(client, sluice, sandbox):
    """Removing the queue label from their pod templates would recreate all pods."""
    metadata = {"labels": {"app": "a", QUEUE: "q"}, "annotations": {"mine": "stays"}}  # the gate adds the queue
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "pause"}]}}
    body = {
        "metadata": {"name": "a", "labels": {QUEUE: "q"}},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": pod},
    }
    labelled = await sandbox.local("admin").create("deployments", "default", body)
    await unreachable_gate(client, frameworks=("batch/job", "pod", "deployment")).ensure()
    told = "error: deployment is still enabled: add it to integrations.exclude and restart Sluice first\n"
    assert await sluice("uninstall", "--kind", "deployment", "--restore", "--yes") == (1, told)
    await unreachable_gate(client).ensure()
    code, output = await sluice("uninstall", "--kind", "deployment", "--restore", "--yes")
    plan = "remove the annotations of Sluice from 0 objects\nunsuspend what is waiting: 0 objects\n"
    assert (code, output) == (0, f"{plan}done\n")
    assert sandbox.local("admin").get("deployments", "default", "a") == labelled


@pytest.mark.parametrize("mode", ["webhooks", "policies"])
async def test_uninstall_of_a_disabled_kind_restores_its_objects_while_sluice_runs(client, sluice, sandbox, mode):
    admin, name = sandbox.local("admin"), "kubeflow.org/pytorchjob"
    for kind in all_kinds(frameworks=(name, "jobset.x-k8s.io/jobset")):
        if kind.is_custom:
            await admin.create("customresourcedefinitions", "", definition(kind))
    await admin.create("pytorchjobs", "default", waiting("PyTorchJob", "t", {"runPolicy": {"suspend": True}}))
    await admin.create("pytorchjobs", "default", waiting("PyTorchJob", "odd", {"runPolicy": {"suspend": True}}))
    await admin.patch("pytorchjobs", "default", "odd", {"status": {"conditions": ["odd"]}}, subresource="status")
    jobset = await admin.create("jobsets", "default", waiting("JobSet", "s", {"suspend": True}))
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    lease = {"metadata": {"name": "sluice-database"}, "spec": {"holderIdentity": "host_1_a", "renewTime": now}}
    await client.create("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", lease)
    await unreachable_gate(client, mode, frameworks=("batch/job", name)).ensure()
    code, output = await sluice("uninstall", "--kind", name, "--restore", "--yes")
    assert (code, output) == (
        1,
        f"error: {name} is still enabled: add it to integrations.exclude and restart Sluice first\n",
    )
    gate = unreachable_gate(client, mode)
    await gate.ensure()
    await gate.remove_obsolete()
    _, plan = await sluice("uninstall", "--kind", name)
    assert "keep suspended what is waiting: 1 object; to start them: --restore\n" in plan
    code, output = await sluice("uninstall", "--kind", name, "--restore", "--yes")
    assert (code, output.splitlines()) == (
        0,
        [
            (
                "cannot be read, and is not unsuspended: /apis/kubeflow.org/v1/namespaces/default/pytorchjobs/odd: "
                "AttributeError: 'str' object has no attribute 'get'"
            ),
            "remove the annotations of Sluice from 2 objects",
            "unsuspend what is waiting: 1 object",
            "done",
        ],
    )
    after = admin.get("pytorchjobs", "default", "t")
    assert after["spec"] == {"runPolicy": {"suspend": False}}
    assert after["metadata"]["annotations"] == {"mine": "stays"}
    assert admin.get("jobsets", "default", "s") == jobset
    assert (await sluice("gate", "status"))[0] == 0
    code, output = await sluice("uninstall", "--kind", "kubeflow.org/pytorch", "--yes")
    assert code == 2
    assert "did you mean kubeflow.org/pytorchjob?" in output


async def test_uninstall_applies_requested_replicas_and_removes_notes_of_running_objects(client, sluice, sandbox):
    del client
    admin, ours, mine = sandbox.local("admin"), {"sluice.dev/submitted-by": "alice"}, {"mine": "stays"}
    for kind in all_kinds(frameworks=("ray.io/raycluster", "mcad.ibm.com/appwrapper")):
        if kind.is_custom:
            await admin.create("customresourcedefinitions", "", definition(kind))
    pod = {"spec": {"containers": [{"name": "main", "image": "pause"}]}}
    group = {"groupName": "gpu", "replicas": 1, "minReplicas": 0, "maxReplicas": 9, "template": pod}
    ray = {"headGroupSpec": {"template": pod}, "suspend": False, "workerGroupSpecs": [group]}
    asks = {"sluice.dev/asks-for": '{"gpu":{"replicas":3}}'}
    item = {"generictemplate": {**job("inner"), "apiVersion": "batch/v1", "kind": "Job"}}
    wrapper = {"resources": {"GenericItems": [item]}}
    started = {"sluice.dev/pod-group-role": "r", "sluice.dev/pod-group-uid": "u"}
    elsewhere = {**job("a")["spec"], "suspend": True}
    for plural, version, kind, spec, noted in (
        ("rayclusters", "ray.io/v1", "RayCluster", ray, asks),
        ("appwrappers", "mcad.ibm.com/v1beta1", "AppWrapper", wrapper, {"sluice.dev/dispatch": "true"}),
        ("pods", "v1", "Pod", pod["spec"], started),
        ("jobs", "batch/v1", "Job", elsewhere, {"sluice.dev/runs-in": "b"}),
    ):
        metadata = {"name": "a", "annotations": {**ours, **noted, **mine}, "labels": {"sluice.dev/managed": "true"}}
        body = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
        await admin.create(plural, "default", body)
    code, output = await sluice("uninstall", "--restore", "--yes")
    assert (code, output.splitlines()[-2:]) == (0, ["unsuspend what is waiting: 1 object", "done"])
    for plural in ("rayclusters", "appwrappers", "pods"):
        metadata = admin.get(plural, "default", "a")["metadata"]
        assert (metadata["annotations"], metadata.get("labels") or {}) == (mine, {})
    assert admin.get("rayclusters", "default", "a")["spec"]["workerGroupSpecs"][0]["replicas"] == 3
    sent = admin.get("jobs", "default", "a")
    assert (sent["spec"]["suspend"], sent["metadata"]["annotations"]) == (True, mine)  # its copy runs elsewhere
    code, output = await sluice("uninstall", "--restore", "--yes")
    assert (code, output.splitlines()) == (
        0,
        ["remove the annotations of Sluice from 0 objects", "unsuspend what is waiting: 0 objects", "done"],
    )


@pytest.mark.costly
async def test_uninstall_hook_of_the_chart_has_the_needed_permissions_and_kinds(client, sandbox, tmp_path):
    await installed(client, tmp_path)
    with helm.Chart.load(CHART) as chart:
        values = {"config": {"integrations": {"kinds": [TRAINING_RUN_FORM]}}}
        text = chart.render(values, name="sluice", namespace=NAMESPACE)["sluice/templates/uninstall.yaml"]
    *documents, hook = yaml.safe_load_all(text)
    admin = sandbox.local("admin")
    for document in documents:
        await admin.create(f"{document['kind'].lower()}s", document["metadata"].get("namespace", ""), document)
    (own,) = (each for each in all_kinds(own=[parse_form(TRAINING_RUN_FORM)]) if each.kind == "TrainingRun")
    await admin.create("customresourcedefinitions", "", definition(own))
    annotations = {"sluice.dev/submitted-by": "alice"}
    head = {"apiVersion": "example.com/v1", "kind": "TrainingRun"}
    run = {**head, "metadata": {"name": "mine", "annotations": annotations}, "spec": {"paused": False, "roles": []}}
    await admin.create("trainingruns", "default", run)
    name = f"system:serviceaccount:{NAMESPACE}:sluice-uninstall"
    kubeconfig = sandbox.kubeconfig()
    kubeconfig["users"][0]["user"]["token"] = sandbox.add_user(User(name, "1", ("system:authenticated",)))
    (tmp_path / "hook").write_text(yaml.safe_dump(kubeconfig))
    (container,) = hook["spec"]["template"]["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    (configuration,) = (each["data"] for each in documents if each["kind"] == "ConfigMap")
    assert container["env"] == [{"name": "SLUICE_CONFIG", "value": f"{mount['mountPath']}/config.yaml"}]
    (tmp_path / "config.yaml").write_text(configuration["config.yaml"])
    runner = CliRunner(env={"SLUICE_CONFIG": str(tmp_path / "config.yaml")}, catch_exceptions=False)
    done = await asyncio.to_thread(runner.invoke, main, (*container["args"], f"--kubeconfig={tmp_path / 'hook'}"))
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "done")
    left = [key for key in everything(sandbox) if key[0] in ("leases", "secrets", "apiservices", "services")]
    assert [key for key in left if "sluice" in key[2]] == []
    assert not admin.get("trainingruns", "default", "mine")["metadata"].get("annotations")


async def test_uninstall_is_refused_while_sluice_is_running(client, sluice):
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    lease = {"metadata": {"name": "sluice-database"}, "spec": {"holderIdentity": "host_1_a", "renewTime": now}}
    await client.create("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", lease)
    code, output = await sluice("uninstall", "--yes")
    assert (code, output) == (
        1,
        "error: Sluice is still running, as host_1_a: stop it first; if it was killed, wait 15 s\n",
    )
