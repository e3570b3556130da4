"""`sluice cluster join` and `leave`, with `sluice serve` for one sandbox, and another one that joins."""

from __future__ import annotations

import asyncio
import base64
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml
from command_runner import Sluice
from ports import free_port
from serve_processes import NODE, QUEUES, TOKEN, Replica, job, serving, until_job
from user_permissions import allow, bind

from admission.cli.commands.cluster.hub import InSecret
from admission.cluster.client import Client
from admission.sandbox.apiserver.requests import User
from admission.sandbox.sandbox import Sandbox
from admission.store.database.migrations import ensure_ready
from tests.queue_objects import create_objects

MADE = ("serviceaccounts", "clusterroles", "clusterrolebindings", "roles", "rolebindings", "deployments", "secrets")
GATES = ("mutatingadmissionpolicies", "mutatingwebhookconfigurations", "validatingadmissionpolicies")


def own(sandbox: Sandbox, *plurals: str) -> set[str]:
    """Names of Sluice's objects, with their type."""
    admin = sandbox.local("admin")
    found = ((plural, obj["metadata"]) for plural in plurals for obj in admin.list(plural))
    return {f"{plural}/{each['name']}" for plural, each in found if "sluice" in each["name"]}


async def nothing_left(sandbox: Sandbox) -> None:
    """Wait until the namespace is gone, too, with what was made in it meanwhile."""
    while own(sandbox, *MADE, *GATES, "namespaces"):  # noqa: ASYNC110
        await asyncio.sleep(0.05)


@pytest.fixture
async def database_url(tmp_path):
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    await ensure_ready(url)
    await create_objects(url, QUEUES)
    return url


@pytest.fixture
async def world(tmp_path, database_url):
    """(cluster b, the commands of an admin, `sluice serve`, the cluster for which it runs, outside of it)."""
    (tmp_path / "credentials").mkdir()
    port = free_port()
    async with AsyncExitStack() as stack:
        hub, b = [await stack.enter_async_context(Sandbox(speed=60)) for _ in "hb"]
        hub.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        b.write_kubeconfig(tmp_path / "b-admin.yaml")
        await b.local("admin").create("nodes", "", NODE)
        credentials = f"--cluster-credentials={tmp_path / 'credentials'}"
        config = tmp_path / "sluice.yaml"
        config.write_text("integrations: {frameworks: [batch/job]}\n")
        options = (f"--config={config}", credentials)
        replica = await stack.enter_async_context(serving(tmp_path, database_url, *options, port=port))
        await replica.until_ready()
        yield b, Sluice({"SLUICE_SERVER": replica.url, "SLUICE_TOKEN": TOKEN}), replica, hub


def flags(folder: Path, *more: str) -> tuple[tuple[str, ...], str]:
    config = f"--config={folder / 'sluice.yaml'}"
    return (f"--kubeconfig={folder / 'b-admin.yaml'}", f"--directory={folder / 'credentials'}", *more), config


async def says_capacity(sluice: Sluice) -> None:
    """Check that what the nodes of b have is shown, with the rights that the cluster was given."""
    while "Nodes:" not in (described := (await sluice("describe", "cluster", "b")).stdout):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    assert "Nodes:      1, 1 ready, 1 get new pods (seen at 20" in described
    rows = [line.split() for line in described.splitlines()]
    assert ["cpu", "1", "8", "8"] in rows
    assert ["memory", "0", "8Gi", "8Gi"] in rows
    wide = (await sluice("get", "clusters", "-o", "wide")).stdout.splitlines()
    assert wide[0].split()[:6] == ["NAME", "STATE", "SINCE", "NODES", "HELD", "SEEN"]
    assert "  1/1    cpu 1/8, memory 0/8Gi  20" in wide[1]
    assert ["b", "Active", "1/1"] in [
        line.split()[:3] for line in (await sluice("top", "clusters")).stdout.splitlines()
    ]


async def shown_to_whom_the_cluster_allows_it(b: Sandbox, hub: Sandbox, replica: Replica) -> None:
    """Check that the job in b is seen by a user of the hub as soon as b lets that user look at its namespace."""
    alice = Sluice({"SLUICE_SERVER": replica.url, "SLUICE_TOKEN": hub.token("alice")})
    reading = {"apiGroups": ["sluice.dev"], "resources": ["workloads"], "verbs": ["get", "list"]}
    await allow(hub.local("admin"), "alice", reading, namespace="default")
    hidden = await alice("get", "workloads", "j", "-n", "default")
    assert hidden.exit_code == 1
    assert hidden.stderr.rstrip().endswith("(you may not see those of cluster b)")
    assert "j" not in (await alice("get", "workloads", "-n", "default", "-o", "name")).stdout
    await bind(b.local("admin"), "view", "alice", namespace="default")
    while (shown := await alice("get", "workloads", "j", "-n", "default")).exit_code:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    assert shown.stdout.splitlines()[1].split()[0].startswith("job-j-")


@pytest.mark.costly
async def test_cluster_joins_queues_its_jobs_and_leaves_nothing_behind(world, tmp_path):
    b, sluice, replica, hub = world
    there, config = flags(tmp_path)
    before = own(b, *MADE, *GATES)
    planned = await sluice("cluster", "join", "b", *there, config, "--dry-run", "--dispatch")
    assert planned.exit_code == 0, planned.stderr
    documents = list(yaml.safe_load_all(planned.stdout))
    assert documents[-1]["spec"] == {"kubeconfig": "b.yaml"}
    assert "Deployment" not in {each["kind"] for each in documents}
    dispatching = next(each for each in documents if each["metadata"]["name"] == "sluice-dispatch-target")
    assert dispatching["rules"] == [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "delete"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps", "serviceaccounts", "services", "persistentvolumeclaims"],
            "verbs": ["get"],
        },
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceclaims", "resourceclaimtemplates"],
            "verbs": ["get"],
        },
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    ]
    assert "sluice-copy-along-target" not in {each["metadata"]["name"] for each in documents}
    assert own(b, *MADE, *GATES) == before

    joined = await sluice("cluster", "join", "b", *there, config, "--copy-along")
    assert joined.exit_code == 0, (joined.stdout, joined.stderr)
    along = b.local("admin").get("clusterroles", "", "sluice-copy-along-target")
    assert along["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "create", "patch"]}
    ]
    for line in ("b: namespace/sluice-system created", "b: clusterrole/sluice-controller created", "cluster/b created"):
        assert line in joined.stdout
    assert joined.stdout.splitlines()[-2:] == ["b is Active", "b: its gate is registered"]
    kubeconfig = tmp_path / "credentials" / "b.yaml"
    assert kubeconfig.stat().st_mode & 0o077 == 0
    assert "admin-token" not in kubeconfig.read_text()

    again = await sluice("cluster", "join", "b", *there, config)
    assert again.exit_code == 0, again.stderr
    assert "created" not in again.stdout
    assert "changed" not in again.stdout.replace("unchanged", "")

    await b.local("admin").create("jobs", "default", job("j", seconds=3600))
    await until_job(b, "j", lambda obj: bool(obj.get("status", {}).get("active")))
    user = Sluice({"SLUICE_SERVER": replica.url, "SLUICE_TOKEN": TOKEN, "KUBECONFIG": str(tmp_path / "kubeconfig")})
    for command in ("logs", "cancel"):
        elsewhere = await user(command, "j", "-n", "default")
        assert elsewhere.exit_code == 1
        assert "Job j is in the cluster b, of which you need credentials of your own" in elsewhere.stderr
    await says_capacity(sluice)
    await shown_to_whom_the_cluster_allows_it(b, hub, replica)
    refused = await sluice("cluster", "leave", "b", *there)
    assert refused.exit_code == 1
    assert "default/j" in refused.stderr
    assert (await sluice("get", "clusters", "b", "-o", "jsonpath={.spec.state}")).stdout == "Draining"
    await b.local("admin").delete("jobs", "default", "j", propagation="Background")
    left = await sluice("cluster", "leave", "b", *there, "--wait")
    assert left.exit_code == 0, left.stderr
    await nothing_left(b)
    assert list((tmp_path / "credentials").iterdir()) == []
    after = await sluice("cluster", "leave", "b", *there)
    assert after.exit_code == 1
    assert "has nothing that sluice cluster join b made" in after.stderr


@pytest.mark.costly
async def test_cluster_without_policies_gets_the_webhook_whose_certificate_sluice_keeps(world, tmp_path):
    b, sluice, *_ = world
    there, config = flags(tmp_path, "--namespace=sluice-there")
    there_by_webhook = (*there, config, "--gate=webhook")
    nameless = await sluice("cluster", "join", "b", *there_by_webhook)
    assert nameless.exit_code == 1
    assert "--image" in nameless.stderr
    joined = await sluice("cluster", "join", "b", *there_by_webhook, "--image=registry/sluice:1")
    assert joined.exit_code == 0, (joined.stdout, joined.stderr)
    admin = b.local("admin")
    pod = admin.get("deployments", "sluice-there", "sluice-webhook")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry/sluice:1"
    assert "--username=system:serviceaccount:sluice-there:sluice" in pod["containers"][0]["args"]
    secret = admin.get("secrets", "sluice-there", "sluice-webhook-certificates")
    called = admin.get("mutatingwebhookconfigurations", "", "sluice")["webhooks"][0]["clientConfig"]
    assert called["service"] == {"namespace": "sluice-there", "name": "sluice-webhook", "port": 443, "path": "/mutate"}
    assert called["caBundle"] == secret["data"]["ca.crt"]
    assert base64.b64decode(secret["data"]["tls.crt"]).startswith(b"-----BEGIN CERTIFICATE")
    left = await sluice("cluster", "leave", "b", *there)
    assert left.exit_code == 0, left.stderr
    await nothing_left(b)


@pytest.mark.costly
async def test_what_is_wrong_is_said_before_anything_is_changed(world, tmp_path):
    b, sluice, *_ = world
    there, config = flags(tmp_path)
    before = own(b, *MADE, *GATES)

    async def refusal(*arguments: str) -> str:
        done = await sluice("cluster", *arguments)
        assert done.exit_code in (1, 2), done.stdout
        assert own(b, *MADE, *GATES) == before
        return done.stderr

    assert "is the cluster in which Sluice runs" in await refusal("join", "local", *there, config)
    assert "'B_x' is no name" in await refusal("join", "B_x", *there, config)
    assert "a Sluice, " in await refusal("join", "b", f"--kubeconfig={tmp_path / 'kubeconfig'}", there[1], config)
    assert "cannot gate Deployment, Pod, StatefulSet, which are queued (--config)" in await refusal("join", "b", *there)
    broken = tmp_path / "broken.yaml"
    broken.write_text("{")
    assert "is not YAML" in await refusal("join", "b", f"--kubeconfig={broken}", there[1], config)
    nowhere = yaml.safe_load((tmp_path / "b-admin.yaml").read_text())
    nowhere["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    broken.write_text(yaml.safe_dump(nowhere))
    assert "127.0.0.1:1" in await refusal("join", "b", f"--kubeconfig={broken}", there[1], config)
    b.add_user(User("weak", "9", ("system:authenticated",)))
    b.write_kubeconfig(tmp_path / "weak.yaml", "weak")
    weak = await refusal("join", "b", f"--kubeconfig={tmp_path / 'weak.yaml'}", there[1], config)
    assert f"the user of {tmp_path / 'weak.yaml'} may not even read" in weak
    assert "Sluice lacks" not in weak
    assert "--directory" in await refusal("join", "b", there[0], config)
    assert "no kubeconfig" in await refusal("leave", "b", f"--kubeconfig={tmp_path / 'none.yaml'}", there[1])
    named = tmp_path / "named.yaml"
    specs = {"Cluster": ("b", {"kubeconfig": "b.yaml"}), "ResourceFlavor": ("f", {"clusters": ["b"]})}
    objects = [
        {"apiVersion": "sluice.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        for kind, (name, spec) in specs.items()
    ]
    named.write_text(yaml.safe_dump_all(objects))
    assert (await sluice("apply", f"--filename={named}")).exit_code == 0
    assert "b has never joined" in await refusal("leave", "b", *there)
    assert "ResourceFlavor f names b" in await refusal("leave", "b", there[1], "--wait")
    assert (await sluice("get", "clusters", "b", "-o", "jsonpath={.spec.state}")).stdout == "Active"
    assert list((tmp_path / "credentials").iterdir()) == []
    assert (await sluice("delete", "-f", str(named))).exit_code == 0

    account = {"metadata": {"name": "sluice"}}
    await b.local("admin").create("namespaces", "", {"metadata": {"name": "sluice-system"}})
    await b.local("admin").create("serviceaccounts", "sluice-system", account)
    before = own(b, *MADE, *GATES)
    assert "serviceaccount/sluice" in await refusal("join", "b", *there, config)
    await b.local("admin").delete("serviceaccounts", "sluice-system", "sluice")


@pytest.mark.costly
async def test_running_jobs_with_a_queue_label_keep_a_cluster_out_until_an_admin_accepts(world, tmp_path):
    b, sluice, *_ = world
    there, config = flags(tmp_path)
    await b.local("admin").create("jobs", "default", job("early", seconds=36000))
    refused = await sluice("cluster", "join", "b", *there, config)
    assert refused.exit_code == 1
    assert "set spec.uid" in refused.stderr
    uid = b.local("admin").get("namespaces", "", "kube-system")["metadata"]["uid"]
    joined = await sluice("cluster", "join", "b", *there, config, f"--uid={uid}")
    assert joined.exit_code == 0, joined.stderr
    other = await sluice("cluster", "join", "c", *there, config)
    assert "has joined already, as b" in other.stderr

    async with Sandbox(controllers=False) as rebuilt:
        rebuilt.write_kubeconfig(tmp_path / "b-admin.yaml")
        await rebuilt.local("admin").create("jobs", "default", job("restored", seconds=36000))
        refused = await sluice("cluster", "join", "b", *there, config)
    assert "if it was built anew use --uid" in refused.stderr
    assert "Sluice would stop 1 running Job (default/restored), which would queue again" in refused.stderr


async def test_secret_of_credentials_is_made_and_keeps_other_files(tmp_path):
    async with Sandbox(controllers=False) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig")
        async with Client.from_kubeconfig(str(tmp_path / "kubeconfig")) as client:
            credentials = InSecret(client, "default", "clusters")
            await credentials.write("b.yaml", b"b")
            await credentials.write("c.yaml", b"c")
            assert await credentials.remove("b.yaml") == "b.yaml deleted from Secret default/clusters"
            assert await credentials.remove("b.yaml") == ""
        secret = sandbox.local("admin").get("secrets", "default", "clusters")
        assert secret["data"] == {"c.yaml": base64.b64encode(b"c").decode()}


@pytest.mark.costly
async def test_token_is_replaced_while_the_cluster_is_in_use(world, tmp_path):
    b, sluice, *_ = world
    there, config = flags(tmp_path)
    assert (await sluice("cluster", "join", "b", *there, config)).exit_code == 0
    kubeconfig = tmp_path / "credentials" / "b.yaml"
    before = kubeconfig.read_text()
    await b.local("admin").delete("secrets", "sluice-system", "sluice-token")
    again = await sluice("cluster", "join", "b", *there, config)
    assert again.exit_code == 0, again.stderr
    assert "secret/sluice-token created" in again.stdout
    assert kubeconfig.read_text() != before
    await b.local("admin").create("jobs", "default", job("j", seconds=3600))
    await until_job(b, "j", lambda obj: bool(obj.get("status", {}).get("active")))
