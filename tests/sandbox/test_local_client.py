"""The sandbox's client for code in the same process."""

from __future__ import annotations

from admission.sandbox.sandbox import Sandbox


async def test_a_watcher_may_be_closed_twice_and_leaves_others_alone():
    async with Sandbox(controllers=False) as sandbox:
        local = sandbox.local("admin")
        closed, other = local.watch("namespaces"), local.watch("namespaces")
        closed.close()
        closed.close()
        assert [batch async for batch in closed] == []
        await local.create("namespaces", "", {"metadata": {"name": "new"}})
        async for batch in other:
            names = [obj["metadata"]["name"] for _, _, obj, _ in batch]
            if "new" in names:
                other.close()
