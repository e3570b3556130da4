"""Texts of `sluice why` and `sluice position` for a workload: the message of its reason, and current numbers.

The API writes the paragraphs, so that the command line, the dashboard and the Python client show the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.apimachinery.tables import duration
from admission.engine.vocabulary import HOPELESS, PODS_UNSCHEDULED
from admission.model import sentences
from admission.model.pod_set_names import is_computed, titled
from admission.model.quantity import UNLIMITED, format_amount

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from admission.api.resources.start_estimates import StartEstimate
    from admission.engine.explain import Explanation, Lack

_LONG_STOP = 120.0
"""Seconds after an eviction from which it is said what keeps pods from ending: most have a grace period of 30 s."""
_FLAVORS = 5
"""Most flavors and resources with missing quota that are listed."""


@dataclass(frozen=True, slots=True)
class ExplainedWorkload:
    """A workload and its stored state. Times are Unix times (s)."""

    title: str
    """`Job team-a/train`."""
    local_queue: str
    queued_at: float
    reason: str
    message: str
    """The message of the reason."""
    admitted_at: float | None = None
    """Since when it may run; if it may not yet, since when it holds quota."""
    finished_at: float | None = None
    """None: it has not finished."""
    checks_pending: bool = False
    checks: tuple[tuple[str, str, str], ...] = ()
    """Name and state of each admission check that is not Ready, and its message, or why nothing answers it."""
    evicted: str = ""
    """Message of its last eviction, if it has been pending since."""
    stopping_since: float | None = None
    """When it was evicted, if its pods have not all ended since."""


def paragraphs(
    workload: ExplainedWorkload,
    found: Explanation | None,
    *,
    ahead: Sequence[str],
    now: float,
    remedies: Sequence[str] = (),
    estimate: StartEstimate | None = None,
) -> list[str]:
    """Return the explanation as paragraphs: state, reason, remedies, and the workloads ahead.

    found: the engine's explanation; None for a finished workload, or one that the engine does not know.
    ahead: names of the first workloads ahead, as far as the user may read them.
    now: Unix time (s).

    Lines of a list are indented by two spaces.
    """
    if workload.finished_at is not None:
        return [f"{workload.title} ended {_since(workload.finished_at, now)} ago: {_reason_text(workload)}"]
    if found is None or found.state == "Pending":
        texts = list(_waiting(workload, found, ahead, now))
        if estimate is not None:
            texts.insert(2, _estimated(estimate, now))
        if remedies:
            texts.append("\n".join(["It could start now", *(f"  {remedy}" for remedy in dict.fromkeys(remedies))]))
        return texts
    reason_text = _reason_text(workload)
    if found.state == "Evicting":
        texts = [
            f"{workload.title} is being stopped; then its quota in ClusterQueue {found.cluster_queue} is free.",
            reason_text,
        ]
        if workload.stopping_since is not None and now - workload.stopping_since >= _LONG_STOP:
            texts.append(
                f"It was evicted {_since(workload.stopping_since, now)} ago, and pods of it have not ended. "
                "`kubectl get pods` shows them as Terminating: they end after their grace period, those with a "
                "finalizer when it is removed, and those of a lost node when they are deleted with --force."
            )
        return texts
    if workload.checks_pending:
        lines = [f"  {name}: {state}" + (f": {text}" if text else "") for name, state, text in workload.checks]
        return [
            f"{workload.title} has quota in ClusterQueue {found.cluster_queue}, but may not start yet.",
            reason_text,
            "\n".join(["Admission checks that are not ready:", *lines]),
        ]
    since = "" if workload.admitted_at is None else f", {_since(workload.admitted_at, now)} ago"
    if workload.reason == PODS_UNSCHEDULED:
        queue = found.cluster_queue
        return [
            f"{workload.title} was admitted by ClusterQueue {queue}{since}, but its pods do not all run.",
            reason_text,
        ]
    return [f"{workload.title} does not wait: it is admitted{since}.", reason_text]


def place(workload: ExplainedWorkload, found: Explanation | None, *, name: str) -> str:
    """Return its position in the queues as one sentence."""
    if workload.finished_at is not None:
        return f"{name} does not wait: it has ended."
    if found is not None and found.state != "Pending":
        return f"{name} does not wait: it is {'admitted' if found.state == 'Admitted' else 'being stopped'}."
    if found is None or not found.position_in_cluster_queue:
        return f"{name} has no position in its queue: {_reason_text(workload)}"
    return (
        f"{name} is number {found.position_in_cluster_queue} in ClusterQueue {found.cluster_queue} and number "
        f"{found.position_in_local_queue} of LocalQueue {workload.local_queue}: {_reason_text(workload)}"
    )


def _waiting(workload: ExplainedWorkload, found: Explanation | None, ahead: Sequence[str], now: float) -> Iterator[str]:
    queue = found.cluster_queue if found is not None else ""
    where = f"ClusterQueue {queue}" if queue else f"LocalQueue {workload.local_queue}"
    since = _since(workload.queued_at, now)
    if workload.reason in HOPELESS:
        yield f"{workload.title} can not be admitted as it is. It has been in {where} for {since}."
    elif found is not None and found.position_in_cluster_queue:
        number = found.position_in_cluster_queue
        yield f"{workload.title} waits in {where}, as number {number} in the line, for {since}."
    else:
        yield f"{workload.title} waits in {where} for {since}."
    yield _reason_text(workload)
    if workload.evicted and workload.evicted != workload.message:
        yield f"It held quota before, and lost it: {workload.evicted}"
    if found is None:
        return
    if found.lacks and workload.reason not in HOPELESS:
        yield "\n".join(["Free now:", *(f"  {_free(lack)}" for lack in found.lacks[:_FLAVORS])])
        yield f"What would help: {found.lacks[0].hint}."
    if any(found.in_use):
        yield _in_use(found.lacks[0], *found.in_use)
    for hint in dict.fromkeys(hint.hint for hint in found.preemption_hints):  # some are the same for all flavors
        yield f"By preemption: {hint}."
    if found.ahead and workload.reason not in HOPELESS:
        more = found.ahead - len(ahead)
        yield f"Ahead of it: {', '.join(ahead)}" + (f" and {more} more." if more > 0 else ".")


def _estimated(estimate: StartEstimate, now: float) -> str:
    """Return the estimated start, and how often such estimates were right."""
    soonest, latest = estimate.p50 - now, estimate.p90 - now
    if soonest > 0:
        text = f"It will probably start in {duration(soonest)} to {duration(latest)}"
    elif latest > 0:
        text = f"It will probably start within {duration(latest)}"
    else:
        text = "It should have started already, by the last estimate"
    if estimate.share_held is None:
        return f"{text}."
    return f"{text}; {estimate.share_held:.0%} of past estimates held."


def _reason_text(workload: ExplainedWorkload) -> str:
    return f"{workload.reason}: {workload.message}" if workload.message else f"{workload.reason}."


def _free(lack: Lack) -> str:
    def text(amount: int) -> str:
        return "any amount" if amount >= UNLIMITED else format_amount(lack.resource, amount)

    borrowed = f", {text(lack.borrowable)} of that to borrow" if lack.borrowable else ""
    limit = sentences.limit_of(lack.refused_by)
    verb = "ask for" if is_computed(lack.pod_set) else "asks for"
    return (
        f"{lack.resource} in flavor {lack.flavor}: {text(lack.free)}{borrowed}; {titled(lack.pod_set)} {verb} "
        f"{text(lack.requested)}, and at most {text(lack.maximum)} can be used. The limit is {limit}."
    )


def _in_use(lack: Lack, own: int, others: int) -> str:
    """Return how much of the quota is in use by its ClusterQueue and by others, which are not named."""
    used = [f"{format_amount(lack.resource, own)} by its ClusterQueue"] if own else []
    used += [f"{format_amount(lack.resource, others)} by others of its Cohorts"] if others else []
    return f"In use of {lack.resource} in flavor {lack.flavor}: {', '.join(used)}."


def _since(at: float, now: float) -> str:
    return duration(now - at)
