"""Run of one scene of the demo, from the start of its processes to the closing table."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from admission.cli.demo.account import Phase, SceneAccount
from admission.cli.demo.children import alongside, guarded
from admission.cli.demo.closing import Costs, close
from admission.cli.demo.load import operated, prepare, submit
from admission.cli.demo.observer import Observer
from admission.cli.demo.page import DemoPage
from admission.cli.demo.plan import queue_documents
from admission.cli.demo.stage import (
    SLUICE_USER,
    DemoCluster,
    DemoSluice,
    apply,
    running_sandboxes,
    running_sluice,
    sluice_writes,
)
from admission.cli.errors import DemoError
from admission.cluster.client import Client
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.cli.demo.plan import ScenePlan
    from admission.cli.demo.terminal import Terminal

CREDENTIALS: Final = "credentials"
"""Name of the directory of the kubeconfigs of further clusters."""
_CUT: Final = 3.0
"""Real seconds for which Sluice cannot reach a cluster."""
_POLL: Final = 0.1
"""Seconds between updates of the terminal."""
_QUIET: Final = 1.0
"""Seconds without a further write of Sluice after which its work on the last Job is complete."""
_STUCK: Final = 60.0
"""Real seconds without progress, in addition to the longest run time, after which the scene is given up."""


async def run(plan: ScenePlan, terminal: Terminal, *, keep: bool) -> bool:
    """Run `plan` and return whether all promises were kept. `keep` leaves all processes running until cancelled."""
    terminal.say(f"Sluice demo: {plan.title}.")
    for note in plan.notes:
        terminal.say(note)
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-demo-")))
        number = 1 + len(plan.others)
        sandboxes = "a sandbox (a simulated cluster)" if number == 1 else f"{number} sandboxes (simulated clusters)"
        terminal.say(f"Starting {sandboxes} and Sluice, each as a separate process ...")
        directories = [directory, *(directory / name for name in plan.others)]
        for further in directories[1:]:
            further.mkdir()
        running = running_sandboxes(directories, speed=plan.speed, kinds=operated(plan))
        cluster, *joining = await stack.enter_async_context(running)
        others = await _join(stack, directory, dict(zip(plan.others, joining, strict=True)))
        serving = await stack.enter_async_context(
            running_sluice(
                directory,
                cluster.sluice_kubeconfig,
                settings=plan.settings,
                credentials=directory / CREDENTIALS if others else None,
            )
        )
        await stack.enter_async_context(guarded(serving.child))
        client = await stack.enter_async_context(Client.from_kubeconfig(str(cluster.kubeconfig)))
        for each in (client, *others.values()):
            await prepare(each, plan)
        await apply(directory, serving, queue_documents(plan))
        for name in others:
            await _until_joined(client, name)
        account = SceneAccount(plan)
        observer = Observer(client, account, others=others.values())
        page = await stack.enter_async_context(DemoPage(account, observer.elapsed))
        await stack.enter_async_context(alongside(observer.run()))
        await observer.synced()
        terminal.say(f"Live at {page.url}")
        terminal.say(
            f"Dashboard at {serving.server}/ui/ (certificate of the demo's own CA), sign in with token {cluster.token}"
        )
        clients = {LOCAL: client, **others}
        before = await _work(clients, serving)
        with terminal:
            async with (
                alongside(page.run()),
                alongside(submit(clients, plan, account, observer.elapsed)),
                alongside(_cut(others, account, terminal)),
            ):
                await _until_done(account, observer, terminal)
        elapsed = observer.elapsed()
        closing = close(account, await _costs_since(before, clients, serving), elapsed)
        terminal.close(closing)
        await page.publish(closing)
        if keep:
            joined = {name: each.kubeconfig for name, each in zip(plan.others, joining, strict=True)}
            _explain_access(terminal, cluster, joined, serving, page)
            with suppress(asyncio.CancelledError):  # Ctrl-C
                await asyncio.Event().wait()
    return closing.kept


async def _until_done(account: SceneAccount, observer: Observer, terminal: Terminal) -> None:
    """Update the terminal until all Jobs have finished, or until no Job has changed for too long."""
    patience = _STUCK + max(job.run_seconds for job in account.plan.jobs) / account.plan.speed
    moved, since = -1, observer.elapsed()
    while not observer.finished.is_set() and observer.elapsed() - since < patience:
        if (now := account.moves) != moved:
            moved, since = now, observer.elapsed()
        terminal.draw(account, observer.elapsed())
        with suppress(TimeoutError):
            await asyncio.wait_for(observer.finished.wait(), _POLL)
    terminal.draw(account, observer.elapsed(), force=True)


async def _join(stack: AsyncExitStack, directory: Path, clusters: Mapping[str, DemoCluster]) -> dict[str, Client]:
    """Give Sluice the credentials of further clusters, and return an admin's client of each."""
    clients = {}
    for name, cluster in clusters.items():
        (directory / CREDENTIALS).mkdir(exist_ok=True)
        (directory / CREDENTIALS / f"{name}.yaml").write_text(cluster.sluice_kubeconfig.read_text())
        clients[name] = await stack.enter_async_context(Client.from_kubeconfig(str(cluster.kubeconfig)))
    return clients


async def _until_joined(client: Client, name: str) -> None:
    """Wait until Sluice takes workloads of a cluster. Raises DemoError if that takes too long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_STUCK):
            while True:
                cluster = await client.get(f"/apis/sluice.dev/v1/clusters/{name}")
                if cluster.get("status", {}).get("state") == "Active":
                    return
                await asyncio.sleep(_POLL)
    raise DemoError(f"cluster {name} has not joined within {_STUCK:g} s: {cluster.get('status')}")


async def _cut(others: Mapping[str, Client], account: SceneAccount, terminal: Terminal) -> None:
    """Cut the last cluster off from Sluice for some seconds, but not from its users, when a third of all Jobs ran."""
    if not others:
        return
    name, client = [*others.items()][-1]
    while account.count(Phase.DONE) < len(account.plan.jobs) / 3:  # noqa: ASYNC110  watches update it
        await asyncio.sleep(_POLL)
    rules = ({"do": "closeWatches", "abrupt": True}, {"do": "drop"})
    cut = {"rules": [{"match": {"user": [SLUICE_USER]}, **rule} for rule in rules]}
    await client.create("/sandbox/faults", cut)
    terminal.tell(f"Sluice cannot reach cluster {name} any more; what runs there runs on, and holds its quota.")
    await asyncio.sleep(_CUT)
    await client.delete("/sandbox/faults")
    terminal.tell(f"Sluice can reach cluster {name} again.")


@dataclass(frozen=True, slots=True)
class _Work:
    """What Sluice has done since the start of the processes."""

    writes: Counter[str]
    """Writes to the API servers by HTTP method, without Events."""
    transactions: int
    events: int = field(compare=False)
    """Events that were written."""
    queued: int = field(compare=False)
    """Events that are still to be written: they are limited to some in a second."""


async def _work(clients: Mapping[str, Client], serving: DemoSluice) -> _Work:
    writes, events = Counter[str](), 0
    for client in clients.values():
        for (method, resource), count in (await sluice_writes(client)).items():
            if resource == "events":
                events += count
            else:
                writes[method] += count
    statistics = await serving.statistics()
    return _Work(writes, statistics["writeTransactions"], events, statistics["queuedEvents"])


async def _costs_since(before: _Work, clients: Mapping[str, Client], serving: DemoSluice) -> Costs:
    """Return the costs since `before`, after Sluice's last write other than of Events."""
    last = await _work(clients, serving)
    while True:
        await asyncio.sleep(_QUIET)
        before_last, last = last, await _work(clients, serving)
        if last == before_last:
            break
    events = Counter({"POST": last.events + last.queued - before.events})
    return Costs(last.writes - before.writes + events, last.transactions - before.transactions, last.queued)


def _explain_access(
    terminal: Terminal, cluster: DemoCluster, others: Mapping[str, Path], serving: DemoSluice, page: DemoPage
) -> None:
    """Say how to explore what runs. `others`: kubeconfig of each further cluster."""
    terminal.say()
    terminal.say("Everything keeps running. To explore it, run in another terminal:")
    terminal.say()
    for name, value in {"KUBECONFIG": str(cluster.kubeconfig), **serving.environment}.items():
        terminal.say(f"  export {name}={value}")
    # With its path: after `make demo` the command is not in PATH.
    command = Path(sys.argv[0]).absolute()
    terminal.say(f"  {command} get clusterqueues")
    if others:
        terminal.say(f"  {command} top clusters")
    terminal.say("  kubectl get jobs --all-namespaces")
    for name, kubeconfig in others.items():
        terminal.say(f"  kubectl get jobs --all-namespaces --kubeconfig {kubeconfig}  # in {name}")
    terminal.say("  kubectl get clusterqueues")
    terminal.say()
    terminal.say(f"The live page stays at {page.url}. Ctrl-C ends everything.")
