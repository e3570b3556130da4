"""LocalQueues that `sluice serve` creates in the namespaces that ClusterQueues select (`createLocalQueues`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from serve_processes import Replica, serving

from admission.controller.intake.namespace_queues import missing_queues
from admission.model.manifests import parse_manifest
from admission.sandbox.sandbox import Sandbox
from admission.store.audit_log import Author
from admission.store.store import Store

API = "/apis/sluice.dev/v1"


def cluster_queue(name: str, selector: Mapping[str, Any] | None) -> Any:
    spec = {} if selector is None else {"namespaceSelector": selector}
    return parse_manifest(
        {"apiVersion": "sluice.dev/v1", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}
    )


@pytest.mark.parametrize(
    ("naming", "expected"),
    [
        ("default", [("a", "default", "gpus")]),
        ("cluster-queue", [("a", "gpus", "gpus"), ("a", "rest", "rest"), ("b", "rest", "rest")]),
    ],
)
def test_each_selected_namespace_gets_what_it_lacks(naming, expected):
    queues = [
        cluster_queue("rest", {}),
        cluster_queue("gpus", {"matchLabels": {"team": "a"}}),
        cluster_queue("closed", None),
    ]
    namespaces = {"a": {"team": "a"}, "b": {}}
    found = missing_queues(queues, {("b", "default")}, namespaces, naming)
    assert [(obj.metadata.namespace, obj.name, obj.spec.cluster_queue) for obj in found] == expected


async def local_queues(replica: Replica, count: int) -> dict[str, str]:
    """Wait until there are so many LocalQueues; return the ClusterQueue of each `namespace/name`."""
    while True:
        _, text = await replica.get(f"{API}/localqueues")
        items = json.loads(text)["items"]
        if len(items) >= count:
            found = ((each["metadata"], each["spec"]["clusterQueue"]) for each in items)
            return {f"{metadata['namespace']}/{metadata['name']}": queue for metadata, queue in found}
        await asyncio.sleep(0.05)


@pytest.mark.costly
async def test_serve_creates_local_queues_of_namespaces_that_exist_and_that_come(tmp_path: Path, database_url: str):
    async with Sandbox() as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        admin = sandbox.local("admin")
        for name, team in (("one", "a"), ("other", "b")):
            await admin.create("namespaces", "", {"metadata": {"name": name, "labels": {"team": team}}})
        flags = "--create-local-queues=default", "--migrate"
        async with serving(tmp_path, database_url, *flags) as replica:
            await replica.until("leading")
            async with Store.open(database_url) as store:
                author = Author("test")
                await store.queues.create(cluster_queue("gpus", {"matchLabels": {"team": "a"}}), author=author)
                assert await local_queues(replica, 1) == {"one/default": "gpus"}
                await admin.create("namespaces", "", {"metadata": {"name": "two", "labels": {"team": "a"}}})
                assert await local_queues(replica, 2) == {"one/default": "gpus", "two/default": "gpus"}
                await admin.patch("namespaces", "", "other", {"metadata": {"labels": {"team": "a"}}})
                assert "other/default" in await local_queues(replica, 3)
                (version,) = await store.queues.versions("LocalQueue", "default", namespace="one")
                assert version.reason == 'ClusterQueue "gpus" selects the namespace (createLocalQueues)'
