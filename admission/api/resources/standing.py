"""What `sluice why` and `sluice position` print of a workload: its reason's sentence, and the numbers of the moment.

The API makes the paragraphs, so that the command line, a dashboard and the Python client show the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.apimachinery.tables import duration
from admission.engine.vocabulary import HOPELESS, PODS_UNSCHEDULED
from admission.model import sentences
from admission.model.quantity import UNLIMITED, format_amount

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from admission.api.resources.start_estimates import StartEstimate
    from admission.engine.explain import Explanation, Lack

_FLAVORS = 5  # how many lacks are told in full sentences


@dataclass(frozen=True, slots=True)
class Subject:
    """The workload, and what is on record of it. Times are Unix times."""

    title: str
    """`Job team-a/train`."""
    local_queue: str
    queued_at: float
    reason: str
    message: str
    """The sentence of the reason."""
    admitted_at: float | None = None
    finished_at: float | None = None
    """None: it has not ended."""
    checks_pending: bool = False
    checks: tuple[tuple[str, str, str], ...] = ()
    """Name, state and message of each admission check that is not ready."""
    evicted: str = ""
    """The sentence of its last eviction, if it waits since then."""


def paragraphs(
    subject: Subject,
    found: Explanation | None,
    *,
    ahead: Sequence[str],
    now: float,
    remedies: Sequence[str] = (),
    estimate: StartEstimate | None = None,
) -> list[str]:
    """Where it stands, what keeps it from running, what helps, and who is ahead of it.

    `ahead` are the first of those ahead, by the names that may be told. Lines of a list are indented by two spaces.
    """
    if subject.finished_at is not None:
        return [f"{subject.title} has ended {_since(subject.finished_at, now)} ago: {_said(subject)}"]
    if found is None or found.state == "Pending":
        texts = list(_waiting(subject, found, ahead, now))
        if estimate is not None:
            texts.insert(2, _estimated(estimate, now))
        if remedies:
            texts.append("\n".join(["It could start now", *(f"  {remedy}" for remedy in remedies)]))
        return texts
    said = _said(subject)
    if found.state == "Evicting":
        return [
            f"{subject.title} is being stopped; then its quota in ClusterQueue {found.cluster_queue} is free.",
            said,
        ]
    if subject.checks_pending:
        lines = [f"  {name}: {state}" + (f": {text}" if text else "") for name, state, text in subject.checks]
        return [
            f"{subject.title} has quota in ClusterQueue {found.cluster_queue}, but may not start yet.",
            said,
            "\n".join(["Admission checks that are not ready:", *lines]),
        ]
    since = "" if subject.admitted_at is None else f", {_since(subject.admitted_at, now)} ago"
    if subject.reason == PODS_UNSCHEDULED:
        queue = found.cluster_queue
        return [f"{subject.title} was admitted by ClusterQueue {queue}{since}, but its pods do not all run.", said]
    return [f"{subject.title} does not wait: it is admitted{since}.", said]


def place(subject: Subject, found: Explanation | None, *, name: str) -> str:
    """Where in the line it stands, in one sentence."""
    if subject.finished_at is not None:
        return f"{name} does not wait: it has ended."
    if found is not None and found.state != "Pending":
        return f"{name} does not wait: it is {'admitted' if found.state == 'Admitted' else 'being stopped'}."
    if found is None or not found.position_in_cluster_queue:
        return f"{name} has no place in the line: {_said(subject)}"
    return (
        f"{name} is number {found.position_in_cluster_queue} in ClusterQueue {found.cluster_queue} and number "
        f"{found.position_in_local_queue} of LocalQueue {subject.local_queue}: {_said(subject)}"
    )


def _waiting(subject: Subject, found: Explanation | None, ahead: Sequence[str], now: float) -> Iterator[str]:
    queue = found.cluster_queue if found is not None else ""
    where = f"ClusterQueue {queue}" if queue else f"LocalQueue {subject.local_queue}"
    since = _since(subject.queued_at, now)
    if subject.reason in HOPELESS:
        yield f"{subject.title} can not be admitted as it is. It has been in {where} for {since}."
    elif found is not None and found.position_in_cluster_queue:
        number = found.position_in_cluster_queue
        yield f"{subject.title} waits in {where}, as number {number} in the line, for {since}."
    else:
        yield f"{subject.title} waits in {where} for {since}."
    yield _said(subject)
    if subject.evicted and subject.evicted != subject.message:
        yield f"It held quota before, and lost it: {subject.evicted}"
    if found is None:
        return
    if found.lacks and subject.reason not in HOPELESS:
        yield "\n".join(["Free now:", *(f"  {_free(lack)}" for lack in found.lacks[:_FLAVORS])])
        yield f"What would help: {found.lacks[0].hint}."
    if any(found.in_use):
        yield _in_use(found.lacks[0], *found.in_use)
    for hint in found.preemption_hints:
        yield f"By preemption: {hint.hint}."
    if found.ahead and subject.reason not in HOPELESS:
        more = found.ahead - len(ahead)
        yield f"Ahead of it: {', '.join(ahead)}" + (f" and {more} more." if more > 0 else ".")


def _estimated(estimate: StartEstimate, now: float) -> str:
    """In how long it will probably start, and how often such estimates held."""
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


def _said(subject: Subject) -> str:
    return f"{subject.reason}: {subject.message}" if subject.message else f"{subject.reason}."


def _free(lack: Lack) -> str:
    def text(amount: int) -> str:
        return "any amount" if amount >= UNLIMITED else format_amount(lack.resource, amount)

    borrowed = f", {text(lack.borrowable)} of that to borrow" if lack.borrowable else ""
    limit = sentences.limit_of(lack.refused_by)
    return (
        f"{lack.resource} in flavor {lack.flavor}: {text(lack.free)}{borrowed}; pod set {lack.pod_set} asks for "
        f"{text(lack.requested)}, and at most {text(lack.maximum)} can be used. The limit is {limit}."
    )


def _in_use(lack: Lack, own: int, others: int) -> str:
    """Who uses the quota; ClusterQueues of other teams are not named."""
    used = [f"{format_amount(lack.resource, own)} by its ClusterQueue"] if own else []
    used += [f"{format_amount(lack.resource, others)} by others of its Cohorts"] if others else []
    return f"In use of {lack.resource} in flavor {lack.flavor}: {', '.join(used)}."


def _since(at: float, now: float) -> str:
    return duration(now - at)
