"""The sandbox's client for code in the same process."""

from __future__ import annotations

import asyncio

from admission.sandbox.background import background
from admission.sandbox.controllers.base import SimulatedController
from admission.sandbox.sandbox import Sandbox


async def test_closing_a_watcher_twice_does_not_affect_other_watchers():
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


async def test_busy_controller_observes_changes_between_two_syncs():
    seen = []

    class Slow(SimulatedController):
        plurals = ("namespaces",)

        def observe(self, plural, change, obj, before):
            seen.append(obj["metadata"]["name"])
            if not obj["metadata"]["name"].startswith("new"):
                self.enqueue(obj["metadata"]["name"])

        async def sync(self, key):
            """Create an object; the one that the previous sync created must have been observed already."""
            done.append(key)
            assert len([name for name in seen if name.startswith("new")]) == len(done) - 1
            await self.local.create("namespaces", "", {"metadata": {"name": f"new-{len(done)}"}})
            await asyncio.sleep(0)
            finished.set() if len(done) == 4 else None

    async with Sandbox(controllers=False) as sandbox:
        done, finished = [], asyncio.Event()
        async with background(slow=Slow(sandbox.local("admin"), sandbox.clock).run()):
            await finished.wait()


async def test_exception_while_an_object_is_observed_is_logged_and_the_next_is_reconciled(controller_errors):
    class Choosy(SimulatedController):
        plurals = ("namespaces",)

        def observe(self, plural, change, obj, before):
            if obj["metadata"]["name"] == "odd":
                raise ValueError("odd")
            self.enqueue(obj["metadata"]["name"])

        async def sync(self, key):
            done.set() if key == "plain" else None

    async with Sandbox(controllers=False) as sandbox:
        done, local = asyncio.Event(), sandbox.local("admin")
        async with background(choosy=Choosy(local, sandbox.clock).run()):
            for name in ("odd", "plain"):
                await local.create("namespaces", "", {"metadata": {"name": name}})
            await done.wait()
    assert [each.partition("\n")[0] for each in controller_errors] == [
        "Choosy could not process ADDED of namespaces ('', 'odd')"
    ]
    controller_errors.clear()
