"""One scene of the demo from start to closing table: where plan, processes, watcher and displays meet."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from admission.cli.demo.account import Account
from admission.cli.demo.children import alongside, guarded
from admission.cli.demo.closing import Costs, close
from admission.cli.demo.load import operated, prepare, submit
from admission.cli.demo.observer import Observer
from admission.cli.demo.page import Page
from admission.cli.demo.plan import queue_documents
from admission.cli.demo.stage import Cluster, Sluice, apply, running_sandbox, running_sluice, sluice_writes
from admission.cluster.client import Client

if TYPE_CHECKING:
    from admission.cli.demo.plan import Plan
    from admission.cli.demo.terminal import Terminal

_POLL: Final = 0.1
_QUIET: Final = 1.0
"""Seconds without a further write after which Sluice has said all it had to say about the last Job."""
_STUCK: Final = 60.0
"""Real seconds without any Job starting or ending after which waiting longer makes no sense."""


async def run(plan: Plan, terminal: Terminal, *, keep: bool) -> bool:
    """Run `plan`; whether every promise was kept. `keep` leaves all running until the task is cancelled."""
    terminal.say(f"Sluice demo, {plan.title}.")
    for note in plan.notes:
        terminal.say(note)
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-demo-")))
        terminal.say("Starting a sandbox and Sluice, each in a process of its own ...")
        cluster = await stack.enter_async_context(running_sandbox(directory, speed=plan.speed, kinds=operated(plan)))
        serving = await stack.enter_async_context(running_sluice(directory, cluster, settings=plan.settings))
        await stack.enter_async_context(guarded(serving.child))
        client = await stack.enter_async_context(Client.from_kubeconfig(str(cluster.kubeconfig)))
        await prepare(client, plan)
        await apply(directory, serving, queue_documents(plan))
        account = Account(plan)
        observer = Observer(client, account)
        page = await stack.enter_async_context(Page(account, observer.elapsed))
        await stack.enter_async_context(alongside(observer.run()))
        await observer.synced()
        terminal.say(f"Live at {page.url}")
        terminal.say(f"Dashboard at {serving.server}/ui/ (a certificate of the demo's own), token {serving.token}")
        before = await _costs(client, serving)
        with terminal:
            async with alongside(page.run()), alongside(submit(client, plan, account, observer.elapsed)):
                await _until_done(account, observer, terminal)
        elapsed = observer.elapsed()
        closing = close(account, await _costs_since(before, client, serving), elapsed)
        terminal.close(closing)
        await page.tell(closing)
        if keep:
            _look_around(terminal, cluster, serving, page)
            with suppress(asyncio.CancelledError):  # how the user ends it
                await asyncio.Event().wait()
    return closing.kept


async def _until_done(account: Account, observer: Observer, terminal: Terminal) -> None:
    """Show how it stands until all Jobs have ended, or nothing has moved for longer than the longest Job runs."""
    patience = _STUCK + max(job.run_seconds for job in account.plan.jobs) / account.plan.speed
    moved, since = -1, observer.elapsed()
    while not observer.finished.is_set() and observer.elapsed() - since < patience:
        if (now := account.moves) != moved:
            moved, since = now, observer.elapsed()
        terminal.draw(account, observer.elapsed())
        with suppress(TimeoutError):
            await asyncio.wait_for(observer.finished.wait(), _POLL)
    terminal.draw(account, observer.elapsed(), at_once=True)


async def _costs(client: Client, serving: Sluice) -> Costs:
    """All that was spent up to now."""
    return Costs(await sluice_writes(client), (await serving.statistics())["writeTransactions"])


async def _costs_since(before: Costs, client: Client, serving: Sluice) -> Costs:
    """What was spent since `before`, once Sluice has fallen silent: its events come a little after the fact."""
    last = await _costs(client, serving)
    while True:
        await asyncio.sleep(_QUIET)
        before_last, last = last, await _costs(client, serving)
        if last == before_last:
            break
    return Costs(
        Counter(last.api_writes) - Counter(before.api_writes),
        last.transactions - before.transactions,
    )


def _look_around(terminal: Terminal, cluster: Cluster, serving: Sluice, page: Page) -> None:
    terminal.say()
    terminal.say("All is kept running. To look around, in another terminal:")
    terminal.say()
    for name, value in {"KUBECONFIG": str(cluster.kubeconfig), **serving.environment}.items():
        terminal.say(f"  export {name}={value}")
    # After `make demo` the command is not in the PATH.
    terminal.say(f"  {Path(sys.argv[0]).absolute()} get clusterqueues")
    terminal.say("  kubectl get jobs --all-namespaces")
    terminal.say("  kubectl get clusterqueues")
    terminal.say()
    terminal.say(f"The page stays at {page.url}. Ctrl-C ends everything.")
