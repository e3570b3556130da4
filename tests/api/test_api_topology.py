"""`reports/topology`: the state of a topology, from the leader's engine."""

from __future__ import annotations

import asyncio
import gzip

import aiohttp
from api_and_cluster import serving_with_cluster
from api_client import PREFIX, TOKEN, Client
from click.testing import CliRunner
from one_queue import Replica, one_queue

from admission.api.application import create_app, listening
from admission.cli.main import main
from admission.engine import (
    Engine,
    NamespaceChanged,
    NodeChanged,
    Policy,
    QueueObjectChanged,
    TopologyRules,
    WorkloadPending,
)
from admission.engine.topology.nodes import NodeState
from admission.model.manifests import parse_manifest
from admission.model.topology import HOSTNAME, TopologyRequest
from admission.model.workload import PodSet, Workload
from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.users import AUTHENTICATED, MASTERS
from admission.store.audit_log import Author


class Leading(Replica):
    """The leader, with two racks of two nodes, one of them cordoned, and a Job in the first one."""

    def __init__(self) -> None:
        self._engine = Engine(Policy(topology=TopologyRules()))
        self._engine.observe(NamespaceChanged("a", {}), now=0.0)
        quota = {"name": "gpu", "resources": [{"name": "cpu", "nominalQuota": "100"}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
        specs = {
            "Topology": {"levels": [{"nodeLabel": "example.com/rack"}, {"nodeLabel": HOSTNAME}]},
            "ResourceFlavor": {"nodeLabels": {"pool": "gpu"}, "topologyName": "x"},
            "ClusterQueue": {"namespaceSelector": {}, "resourceGroups": groups},
        }
        for kind, spec in specs.items():
            name = "gpu" if kind == "ResourceFlavor" else "x"
            self._observe(kind, {"name": name}, spec)
        self._observe("LocalQueue", {"name": "q", "namespace": "a"}, {"clusterQueue": "x"})
        for name in ("r1-0", "r1-1", "r2-0", "r2-1"):
            labels = {"pool": "gpu", "example.com/rack": name[:2], HOSTNAME: name}
            state = NodeState(name, labels, {"cpu": 4000, "pods": 10}, unschedulable=name == "r2-1")
            self._engine.observe(NodeChanged(state), now=0.0)
        request = TopologyRequest(required="example.com/rack")
        pod_sets = (PodSet("main", 3, {"cpu": 2000}, topology=request),)
        self._engine.observe(WorkloadPending(Workload("u", "a", "train", "q", 0, 1.0, pod_sets)), now=1.0)
        self._engine.settle(1.0)

    def _observe(self, kind: str, metadata: dict[str, str], spec: dict[str, object]) -> None:
        manifest = {"apiVersion": "sluice.dev/v1", "kind": kind, "metadata": metadata, "spec": spec}
        self._engine.observe(QueueObjectChanged(parse_manifest(manifest)), now=0.0)

    def engine(self) -> Engine:
        return self._engine


async def test_report_says_what_is_free_out_and_running(store, clock):
    app = create_app(store, token=TOKEN, checks={}, controller=Leading(), now=clock)
    async with listening(app, "127.0.0.1", 0) as url, aiohttp.ClientSession() as session:
        client = Client(url, session)
        report = (await client.get(f"{PREFIX}/reports/topology?flavor=gpu")).body
        assert report["total"]["free"] == {"cpu": "6"}
        assert [(level["nodeLabel"], level["domains"], level["mostWhole"]) for level in report["levels"]] == [
            ("example.com/rack", 2, 1),
            (HOSTNAME, 4, 1),
        ]
        assert report["levels"][0]["mostFree"] == [{"resource": "cpu", "free": "4", "values": ["r2"]}]
        assert report["out"] == [{"name": "r2-1", "reason": "is cordoned", "values": ["r2", "r2-1"]}]
        (workload,) = report["workloads"]
        assert (workload["namespace"], workload["name"], workload["pods"]) == ("a", "train", 3)
        domains = {tuple(domain["values"]): domain for domain in report["domains"]}
        assert domains["r1", "r1-0"]["runs"] == [{"workload": 0, "pods": 2}]
        assert (domains["r2",]["nodes"], domains["r2",]["out"], domains["r2",]["whole"]) == (2, 1, 1)
        racks = (await client.get(f"{PREFIX}/reports/topology?flavor=gpu&level=rack")).body
        assert [domain["values"] for domain in racks["domains"]] == [["r1"], ["r2"]]
        for query, status, says in (
            ("", 400, "flavor: give"),
            ("?flavor=gpu&level=floor", 400, f"give one of example.com/rack, {HOSTNAME}"),
            ("?flavor=other", 404, 'no ResourceFlavor "other" with a Topology'),
        ):
            answer = await client.get(f"{PREFIX}/reports/topology{query}")
            assert (answer.status, says in answer.body["message"]) == (status, True), answer.body


async def test_replica_that_does_not_lead_says_so(store, clock):
    async with one_queue(store, clock) as client:
        answer = await client.get(f"{PREFIX}/reports/topology?flavor=default")
        assert (answer.status, answer.body["reason"]) == (503, "ServiceUnavailable")
        assert "only the leading replica can show a topology" in answer.body["message"]


async def test_levels_with_many_domains_are_left_out_and_shown_of_one_domain(store, clock):
    app = create_app(store, token=TOKEN, checks={}, controller=Leading(), now=clock)
    async with listening(app, "127.0.0.1", 0) as url, aiohttp.ClientSession() as session:
        client = Client(url, session)
        racks = (await client.get(f"{PREFIX}/reports/topology?flavor=gpu&most=3")).body
        assert [domain["values"] for domain in racks["domains"]] == [["r1"], ["r2"]]
        assert racks["workloads"] == []
        assert racks["total"]["nodes"] == 4
        one = (await client.get(f"{PREFIX}/reports/topology?flavor=gpu&most=3&within=r1")).body
        assert [domain["values"] for domain in one["domains"]] == [["r1"], ["r1", "r1-0"], ["r1", "r1-1"]]
        assert ([run["name"] for run in one["workloads"]], one["out"]) == (["train"], [])
        for query, status, says in (
            ("most=0", 400, 'most: "0"'),
            ("most=3&level=rack", 400, "cannot be combined"),
            ("within=r3", 404, 'no domain "r3"'),
            ("within=r1/r1-0/x", 404, 'no domain "r1/r1-0/x"'),
        ):
            answer = await client.get(f"{PREFIX}/reports/topology?flavor=gpu&{query}")
            assert (answer.status, says in answer.body["message"]) == (status, True), answer.body


async def test_report_is_compressed_and_sent_once(store, clock):
    app = create_app(store, token=TOKEN, checks={}, controller=Leading(), now=clock)
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept-Encoding": "gzip"}
    async with (
        listening(app, "127.0.0.1", 0) as url,
        aiohttp.ClientSession(headers=headers, auto_decompress=False) as session,
    ):
        address = f"{url}{PREFIX}/reports/topology?flavor=gpu"
        async with session.get(address) as response:
            body = await response.read()
            assert b"r1-0" in gzip.decompress(body)
            etag = response.headers["Etag"]
        async with session.get(address, headers={"If-None-Match": etag}) as response:
            assert (response.status, await response.read()) == (304, b"")


async def test_names_of_workloads_in_other_namespaces_are_hidden(store, tmp_path, clock):
    manifest = {"apiVersion": "sluice.dev/v1", "kind": "LocalQueue", "spec": {"clusterQueue": "x"}}
    groups = [
        {"coveredResources": ["cpu"], "flavors": [{"name": "d", "resources": [{"name": "cpu", "nominalQuota": 1}]}]}
    ]
    queue = {**manifest, "kind": "ClusterQueue", "metadata": {"name": "x"}, "spec": {"resourceGroups": groups}}
    flavor = {**manifest, "kind": "ResourceFlavor", "metadata": {"name": "d"}, "spec": {}}
    for document in (flavor, queue, *({**manifest, "metadata": {"name": "q", "namespace": of}} for of in "ab")):
        await store.queues.create(parse_manifest(document), author=Author("ada"))
    users = {f"{name}-token": User(name, groups=(AUTHENTICATED,)) for name in ("ann", "ben")}
    users |= {"root-token": User("root", groups=(MASTERS,)), "sluice-token": User("sluice", groups=(MASTERS,))}
    async with serving_with_cluster(store, tmp_path, clock=clock, users=users, deciding=Leading()) as server:
        root = server.sandbox.local("root")
        for user, namespace in (("ann", "a"), ("ben", "b")):
            await root.create("namespaces", "", {"metadata": {"name": namespace}})
            await server.grant(user, [{"apiGroups": ["sluice.dev"], "resources": ["reports"], "verbs": ["get"]}])
            lists = {"apiGroups": ["sluice.dev"], "resources": ["workloads"], "verbs": ["list"]}
            await server.grant(user, [lists], namespace=namespace)
        seen = {}
        for user in ("ann", "ben"):
            answer = await server.as_user(user, "GET", "reports/topology?flavor=gpu")
            assert answer.status == 200, answer.body
            seen[user] = answer.body["workloads"]
        assert [one["name"] for one in seen["ann"]] == ["train"]
        assert seen["ben"] == [{"pods": 3}]


async def test_sluice_tree_shows_racks_nodes_and_what_is_out(store, clock):
    app = create_app(store, token=TOKEN, checks={}, controller=Leading(), now=clock)
    async with listening(app, "127.0.0.1", 0) as url:
        environment = {"SLUICE_SERVER": url, "SLUICE_TOKEN": TOKEN}

        async def tree(*arguments: str) -> list[str]:
            command = ["tree", "--topology", "gpu", *arguments]
            result = await asyncio.to_thread(CliRunner().invoke, main, command, env=environment)
            assert result.exit_code == 0, result.output
            return [" ".join(line.split()) for line in result.output.splitlines()]

        racks = await tree()
        assert "gpu (x) 4 1 1 cpu 12 6 0 6" in racks
        assert "r1 2 0 cpu 8 6 0 2" in racks
        assert "not shown: 4 of kubernetes.io/hostname; see --level" in racks
        assert "r2-1 is cordoned in r2" in racks
        nodes = await tree("--level", "hostname")
        assert "r1-0 1 0 cpu 4 4 0 0 2 of a/train" in nodes
