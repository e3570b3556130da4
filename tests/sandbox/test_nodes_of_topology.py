"""Simulated nodes in blocks and racks."""

from __future__ import annotations

from admission.sandbox.main import nodes_of_topology


def labels(*sizes: int) -> list[tuple[str, ...]]:
    nodes = [node["metadata"]["labels"] for node in nodes_of_topology(sizes)]
    names = ("block", "rack", "kubernetes.io/hostname")
    return [tuple(each[name] for name in names if name in each) for each in nodes]


def test_nodes_have_the_labels_of_their_block_and_rack():
    assert labels(2, 1, 2) == [
        ("block-0", "rack-0-0", "node-0-0-0"),
        ("block-0", "rack-0-0", "node-0-0-1"),
        ("block-1", "rack-1-0", "node-1-0-0"),
        ("block-1", "rack-1-0", "node-1-0-1"),
    ]
    assert labels(2, 1) == [("rack-0", "node-0-0"), ("rack-1", "node-1-0")]
    assert labels(2) == [("node-0",), ("node-1",)]
