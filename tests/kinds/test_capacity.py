"""Sums over nodes, also of a cluster that says absurd things."""

from __future__ import annotations

import pytest

from admission.kinds.capacity import MAX_NODES, MAX_PAGES, MAX_RESOURCES, listed_capacity, watched_capacity
from admission.kinds.placement import node_state
from admission.model.quantity import UNLIMITED


def node(ready="True", *, cordoned=False, **allocatable):
    conditions = [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": ready}]
    status = {"conditions": conditions, "allocatable": allocatable}
    return {"metadata": {"name": "n"}, "spec": {"unschedulable": cordoned}, "status": status}


async def pages(*found):
    for each in found:
        yield each


async def seen(*nodes):
    return await listed_capacity(pages({"items": list(nodes)}))


async def test_nodes_are_counted_and_summed_by_whether_they_get_new_pods():
    nodes = [
        node(cpu="3500m", memory="1Gi", gpu="8"),
        node(cpu="500m", memory="1Gi"),
        node(cpu="4", cordoned=True),
        node("False", gpu="8"),
        node("Unknown", gpu="8", cordoned=True),
    ]
    found = await listed_capacity(pages({"items": nodes[:2]}, {"items": []}, {"items": nodes[2:]}))
    assert (found.nodes, found.ready, found.schedulable) == (5, 3, 2)
    assert found.allocatable == {"cpu": 8000, "memory": 2 * 2**30, "gpu": 24}
    assert found.usable == {"cpu": 4000, "memory": 2 * 2**30, "gpu": 8}
    assert found.message == ""
    assert await watched_capacity(map(node_state, nodes)) == found


@pytest.mark.parametrize("quantity", ["-1", "many", "", "1" * 1000, "1e", None, True, {"a": 1}, ["1"], float("inf")])
async def test_quantities_that_are_not_understood_are_left_out_and_counted(quantity):
    odd = node(cpu=quantity, gpu="1")
    assert node_state(odd).allocatable == {"gpu": 1}
    found = await seen(odd, node(cpu="2"))
    assert found.allocatable == {"cpu": 2000, "gpu": 1}
    assert found.message == "1 quantities of nodes are not valid, and are not counted"


async def test_amounts_end_at_the_highest_one():
    found = await seen(*(node(cpu="1e9999", memory="9Ei") for _ in range(3)))
    assert found.allocatable == {"cpu": UNLIMITED, "memory": UNLIMITED} == found.usable


@pytest.mark.parametrize(
    "odd",
    [
        None, "node", [], {}, {"status": None}, {"status": []}, {"spec": "x", "status": {"allocatable": ["cpu"]}},
        {"status": {"conditions": "Ready", "allocatable": None}}, {"status": {"conditions": [None, {"type": "Ready"}]}},
    ],
)  # fmt: skip
async def test_what_is_no_node_is_one_that_is_not_ready_and_has_nothing(odd):
    found = await seen(odd, node(cpu="1"))
    assert (found.nodes, found.ready, found.allocatable) == (2, 1, {"cpu": 1000})


@pytest.mark.parametrize("page", [{}, {"items": None}, {"items": {"a": 1}}, {"items": "abc"}])
async def test_page_without_a_list_has_no_nodes(page):
    assert (await listed_capacity(pages(page, {"items": [node()]}))).nodes == 1


async def test_neither_more_nodes_are_read_nor_more_resources_counted_than_there_may_be():
    read = 0

    async def endless():
        nonlocal read
        while True:
            read += 1
            yield {"items": [node(cpu="1")] * 1000}

    found = await listed_capacity(endless())
    assert (found.nodes, found.allocatable["cpu"]) == (MAX_NODES, MAX_NODES * 1000)
    assert read == MAX_NODES / 1000 + 1
    assert found.message == f"only the first {MAX_NODES} nodes are counted"

    few = await listed_capacity(pages({"items": [node(cpu="1")]}, *[{"items": []}] * MAX_PAGES, {"items": [node()]}))
    assert (few.nodes, few.message) == (1, "only the first 1 nodes are counted")

    found = await seen(node(**{f"example.com/r{number}": "1" for number in range(1000)}), node(**{"bad name\x00": "1"}))
    assert len(found.allocatable) == MAX_RESOURCES
    assert found.message == f"only {MAX_RESOURCES} resources are counted"
