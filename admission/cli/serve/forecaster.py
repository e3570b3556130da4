"""The process that estimates starts: it reads the database, runs the engine forward and answers; it writes nothing.

`sluice serve` starts it (`python -m admission.cli.serve.forecaster`) and talks to it by lines of JSON on standard input
and output. It ends when its input does. What it takes is not taken from decisions: it has an interpreter of its own.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from typing import Any, Final

import orjson

from admission.cli.configuration.policy_settings import (
    AdmissionFairSharingSettings,
    FairSharingSettings,
    ResourcesSettings,
    policy,
)
from admission.model.errors import StoreError
from admission.simulate.estimator import Estimator
from admission.store.store import Store

BUDGET: Final = 1.0
"""Seconds of processor time for one look into the future; what it does not reach has no estimate."""

REMEMBERED: Final = 5000
"""Workloads that have ended, from which run times are learned at the start."""


async def answer_for_ever(order: dict[str, Any]) -> None:
    """Answer each line until there are no more.

    The database is opened for each: it may be away when the first one comes, and has a connection less for the others.
    """
    estimator = Estimator(_policy(order))
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        try:
            async with Store.open(order["databaseUrl"]) as store:
                answer = await _estimate(store, estimator, orjson.loads(line))
        except StoreError as error:
            answer = {"error": str(error)}
        sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
        sys.stdout.buffer.flush()


async def _estimate(store: Store, estimator: Estimator, asked: dict[str, Any]) -> dict[str, Any]:
    began = time.process_time()
    estimator.learn(await store.workloads.ended_since(estimator.ended_until, limit=REMEMBERED))
    state = await store.load()
    until = time.process_time() + BUDGET
    found = estimator.estimate(
        state,
        now=time.time(),
        namespaces=asked["namespaces"],
        limits=asked["limits"],
        on_time=lambda: time.process_time() < until,
    )
    spent = time.process_time() - began
    return {"at": found.at, "starts": found.starts, "shareHeld": found.share_held, "cpuSeconds": spent}


def _policy(order: dict[str, Any]) -> Any:
    given = order["policy"]
    return policy(
        fair_sharing=_setting(FairSharingSettings, given["fair_sharing"]),
        admission_fair_sharing=_setting(AdmissionFairSharingSettings, given["admission_fair_sharing"]),
        resources=_setting(ResourcesSettings, given["resources"]),
        wait_for_pods_ready=None,
    ).engine


def _setting(model: Any, value: Any) -> Any:
    return None if value is None else model.model_validate(value)


def main() -> None:
    """The process."""
    os.nice(10)
    gc.set_threshold(500_000)  # nearly all that a look into the future makes lasts as long as it, and then goes at once
    line = sys.stdin.buffer.readline()
    if not line:
        return
    try:
        asyncio.run(answer_for_ever(orjson.loads(line)))
    except BrokenPipeError:  # `serve` was killed and waits for no answer; what is still buffered goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
