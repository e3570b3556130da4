"""`reports/topology`: the state of a topology, from the leader's engine."""

from __future__ import annotations

import aiohttp
from api_client import PREFIX, TOKEN, Client
from one_queue import Replica, one_queue

from admission.api.application import create_app, listening
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
