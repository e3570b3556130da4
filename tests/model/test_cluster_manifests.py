"""Clusters as they are written: what is refused, and with which message."""

from __future__ import annotations

import pytest

from admission.model.errors import InvalidObject
from admission.model.manifests import parse_manifest, to_manifest


def cluster(name="b", **spec):
    return {"apiVersion": "sluice.dev/v1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec}


def flavor(**spec):
    return {"apiVersion": "sluice.dev/v1", "kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": spec}


@pytest.mark.parametrize("file", ["/etc/shadow", "../b.yaml", "a/b.yaml", ".hidden", "", "b.yaml\n"])
def test_kubeconfig_is_a_file_in_the_directory_of_credentials(file):
    with pytest.raises(InvalidObject, match=r"spec\.kubeconfig"):
        parse_manifest(cluster(kubeconfig=file))


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (cluster(), "spec.kubeconfig"),
        (cluster("local", kubeconfig="b.yaml"), "spec.kubeconfig"),
        (cluster("local", state="Disabled"), "spec.state"),
        (cluster(kubeconfig="b.yaml", webhook={"caFile": "b.crt"}), "spec.webhook"),
        (cluster(kubeconfig="b.yaml", webhook={"caFile": "b.crt", "url": "http://b"}), "spec.webhook.url"),
        (cluster(kubeconfig="b.yaml", webhook={"url": "https://b"}), "spec.webhook.caFile"),
        (flavor(clusters=["b"], clusterSelector={}), "spec.clusterSelector"),
        (flavor(clusters=["b", "c"], nodeLabels={"a": "b"}, topologyName="dc"), "spec.clusters"),
    ],
)
def test_what_cannot_work_is_refused(document, field):
    with pytest.raises(InvalidObject, match=field):
        parse_manifest(document)


def test_local_may_have_labels_and_drain():
    local = parse_manifest(cluster("local", state="Draining"))
    assert local.spec.state == "Draining"


def test_dispatch_is_kept_although_it_is_empty():
    spec = {"namespaceSelector": {}, "dispatch": {}}
    written = {"apiVersion": "sluice.dev/v1", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": spec}
    parsed = parse_manifest(written)
    assert parsed.spec.dispatch is not None
    assert parse_manifest(to_manifest(parsed)) == parsed
