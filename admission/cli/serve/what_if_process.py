"""Child process that answers one what-if question: it reads the database and replays a period; it writes nothing.

`sluice serve` starts it (`python -m admission.cli.serve.what_if_process`) and writes two lines of JSON to its standard
input, the configuration and the question. It writes lines with its progress, and one with the answer. A separate
process, and thus a separate interpreter, so that replays do not delay decisions.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission.cli.serve.forecaster import policy_of
from admission.engine import Engine, QueueObjectChanged
from admission.model.errors import InvalidObject, StoreError
from admission.model.manifests import parse_manifest
from admission.model.queues import Budget
from admission.simulate.what_if import Goal, quota_needed, what_if
from admission.simulate.what_if_document import comparison_document, needed_document
from admission.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from admission.engine import Policy
    from admission.model.queues import QueueObject

_PROGRESS_SECONDS: Final = 0.5
"""Seconds between two reports of progress."""


async def answer(configuration: dict[str, Any], question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a question: a comparison, or the quota for a goal. Raises StoreError and InvalidObject."""
    policy = policy_of(configuration)
    proposed = [parse_manifest(manifest) for manifest in question["objects"]]
    async with Store.open(configuration["databaseUrl"], writes=False) as store:
        history = await _history(store, policy, proposed, question["start"])
        past = await store.past(start=question["start"], end=question["end"], history=history)
    _write({"progress": 0.0})
    namespaces = question["namespaces"]
    if question["goal"] is None:
        return comparison_document(what_if(past, policy, proposed, namespaces, progress=_report()))
    goal = Goal(**question["goal"])
    return needed_document(quota_needed(past, policy, goal, proposed, namespaces, progress=_report()), goal, past)


async def _history(store: Store, policy: Policy, proposed: Sequence[QueueObject], start: float) -> float:
    """Return the seconds before the period of which its policies count admissions; Budgets say it of themselves."""
    engine = Engine(policy)
    budgets = [version.object for version in await store.queues.changes_since(0, kind=Budget.kind)]
    for obj in (*budgets, *proposed):
        engine.observe(QueueObjectChanged(obj), now=start)
    return engine.history


def _report() -> Callable[[float], None]:
    """Return a function that writes progress, not too often."""
    last = time.monotonic()

    def report(share: float) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= _PROGRESS_SECONDS:
            last = now
            _write({"progress": round(share, 4)})

    return report


def _write(line: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(line) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Read the configuration and the question from standard input, and write the answer."""
    os.nice(10)
    gc.set_threshold(500_000)  # nearly all objects live until the end
    configuration, question = (orjson.loads(sys.stdin.buffer.readline()) for _ in range(2))
    try:
        _write({"answer": asyncio.run(answer(configuration, question))})
    except StoreError as error:
        _write({"error": str(error)})
    except InvalidObject as error:
        _write({"invalid": str(error)})
    except BrokenPipeError:  # nobody waits for the answer any more; discard what is still buffered
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
