"""The sandbox's client for code in the same process."""

from __future__ import annotations

import asyncio

from admission.sandbox.background import background
from admission.sandbox.controllers.base import Controller
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


async def test_a_controller_that_has_much_to_do_sees_what_happens_meanwhile():
    seen = []

    class Slow(Controller):
        plurals = ("namespaces",)

        def observe(self, plural, change, obj, before):
            seen.append(obj["metadata"]["name"])
            if not obj["metadata"]["name"].startswith("new"):
                self.enqueue(obj["metadata"]["name"])

        async def sync(self, key):
            """Something happens while it works, and it was told of what happened the last time."""
            done.append(key)
            assert len([name for name in seen if name.startswith("new")]) == len(done) - 1
            await self.local.create("namespaces", "", {"metadata": {"name": f"new-{len(done)}"}})
            await asyncio.sleep(0)
            finished.set() if len(done) == 4 else None

    async with Sandbox(controllers=False) as sandbox:
        done, finished = [], asyncio.Event()
        async with background(slow=Slow(sandbox.local("admin"), sandbox.clock).run()):
            await finished.wait()
