"""Child process that estimates start times: it reads the database, simulates the engine, and saves the estimates.

`sluice serve` starts it (`python -m admission.cli.serve.forecaster`) and exchanges lines of JSON with it on standard
input and output: first the configuration, then requests. It exits at the end of its input. A separate process, and
thus a separate interpreter, so that estimates do not delay decisions.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson
from pydantic import BaseModel

from admission.cli.configuration.policy_settings import (
    AdmissionFairSharingSettings,
    FairSharingSettings,
    ResourcesSettings,
    TopologySettings,
    policy,
)
from admission.model.errors import StoreError
from admission.simulate.estimator import Estimator
from admission.store.start_estimates import SavedEstimates
from admission.store.store import Store

if TYPE_CHECKING:
    from admission.engine import Policy

T = TypeVar("T", bound=BaseModel)

BUDGET: Final = 1.0
"""Seconds of processor time for one simulation; workloads that it does not reach have no estimate."""

SAVE_SECONDS: Final = 60.0
"""Seconds between two writes of the estimates; a kill loses at most so much of what was learned."""

MAX_LEARNED: Final = 5000
"""Maximum number of finished workloads from which run times are learned in one request."""


async def answer_requests(configuration: dict[str, Any]) -> None:
    """Answer each request until the end of the input.

    The database is opened for each request: it may be unavailable at first, and no connection is kept in between.
    """
    estimator, saving = Estimator(policy_of(configuration)), _Saving()
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        try:
            async with Store.open(configuration["databaseUrl"]) as store:
                await saving.restore(store, estimator)
                answer = await _estimate(store, estimator, orjson.loads(line))
                await saving.save(store, estimator, answer)
        except StoreError as error:
            answer = {"error": str(error)}
        sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
        sys.stdout.buffer.flush()


class _Saving:
    """Saves estimates and what they are learned from, so that a restart or another leader continues with them."""

    def __init__(self) -> None:
        self._restored = False
        self._saved_at = 0.0

    async def restore(self, store: Store, estimator: Estimator) -> None:
        if not self._restored:
            saved = await store.start_estimates.load()
            if saved is not None:
                estimator.restore(saved.learned)
            self._restored = True

    async def save(self, store: Store, estimator: Estimator, answer: dict[str, Any]) -> None:
        if answer["at"] - self._saved_at >= SAVE_SECONDS:
            shown = {name: answer[name] for name in ("starts", "shareHeld", "compared")}
            with suppress(StoreError):  # it is busy or takes no writes: the estimates are shown, and saved next time
                await store.start_estimates.save(SavedEstimates(answer["at"], shown, estimator.document()))
                self._saved_at = answer["at"]


async def _estimate(store: Store, estimator: Estimator, request: dict[str, Any]) -> dict[str, Any]:
    began = time.process_time()
    estimator.learn(await store.workloads.finished_since(estimator.ended_until, limit=MAX_LEARNED))
    state = await store.load()
    until = time.process_time() + BUDGET
    found = estimator.estimate(
        state,
        now=time.time(),
        namespaces=request["namespaces"],
        limits=request["limits"],
        has_time=lambda: time.process_time() < until,
    )
    spent = time.process_time() - began
    return {
        "at": found.at,
        "starts": found.starts,
        "shareHeld": found.share_held,
        "compared": found.compared,
        "cpuSeconds": spent,
    }


def policy_of(configuration: dict[str, Any]) -> Policy:
    """Return the engine's policy from the first line that a child process reads (see `simulating`)."""
    settings = configuration["policy"]
    return policy(
        fair_sharing=_setting(FairSharingSettings, settings["fair_sharing"]),
        admission_fair_sharing=_setting(AdmissionFairSharingSettings, settings["admission_fair_sharing"]),
        resources=_setting(ResourcesSettings, settings["resources"]),
        wait_for_pods_ready=None,
        topology=TopologySettings(),
    ).engine


def _setting(model: type[T], value: Any) -> T | None:
    return None if value is None else model.model_validate(value)


def main() -> None:
    """Read the configuration from standard input, then answer requests."""
    os.nice(10)
    gc.set_threshold(500_000)  # nearly all objects of a simulation live until its end
    line = sys.stdin.buffer.readline()
    if not line:
        return
    try:
        asyncio.run(answer_requests(orjson.loads(line)))
    except BrokenPipeError:  # `serve` was killed; discard what is still buffered
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
