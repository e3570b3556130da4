"""Why a workload does not run, as a colleague would say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.apimachinery.tables import duration
from admission.cli.output.tables import age

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from admission.client import Attempt, Condition, Explanation, Lack, StartEstimate, Workload

_ENDED = "Finished"


def sentences(workload: Workload, explanation: Explanation, *, now: datetime) -> list[str]:
    """A paragraph in each item: where it stands, the first thing in its way, what would help, who is ahead."""
    who = f"{workload.object_kind} {workload.namespace}/{workload.object_name}"
    ended = workload.conditions.get(_ENDED)
    if ended is not None and ended.holds:
        return [f"{who} has ended{_since(ended, now)}: {_said(ended)}"]
    match explanation.state:
        case "Admitted":
            return [_admitted(who, workload, explanation, now), *_checks(workload)]
        case "Evicting":
            return [f"{who} is being stopped; then its quota in ClusterQueue {explanation.cluster_queue} is free."]
        case _:
            return list(_waiting(who, workload, explanation, now))


def _waiting(who: str, workload: Workload, explanation: Explanation, now: datetime) -> Iterator[str]:
    where = f"ClusterQueue {explanation.cluster_queue}" if explanation.cluster_queue else f"queue {workload.queue}"
    number = explanation.position_in_cluster_queue
    place = f", as number {number} in the line," if number else ""
    since = f" for {age(workload.created.isoformat(), now)}" if workload.created else ""
    yield f"{who} waits in {where}{place}{since}."
    verdict = f"{explanation.reason}: {explanation.message}" if explanation.message else explanation.reason
    if explanation.lacks:
        yield from _short_of(explanation.lacks)
    else:
        yield verdict
        if explanation.attempts:
            yield "\n".join(["Flavors tried:", *(f"  {_tried(attempt)}" for attempt in explanation.attempts)])
    if explanation.not_before is not None and explanation.not_before > now:
        yield f"It takes part again in {duration((explanation.not_before - now).total_seconds())}."
    if explanation.remedies:
        yield "\n".join(["It could start now", *(f"  {remedy}" for remedy in explanation.remedies)])
    if explanation.estimated_start is not None:
        yield _estimated(explanation.estimated_start, now)
    for prospect in explanation.prospects:
        yield f"By preemption: {prospect}."
    if explanation.ahead:
        first = ", ".join(explanation.ahead_first)
        more = explanation.ahead - len(explanation.ahead_first)
        yield f"Ahead of it: {first}" + (f" and {more} more." if more > 0 else ".")
    if explanation.lacks:
        yield f"({verdict})"


def _short_of(lacks: Sequence[Lack]) -> Iterator[str]:
    """The first thing that is lacking in full, and what would help; the others in short."""
    first = lacks[0]
    borrowed = f", {first.borrowable} of that to borrow" if first.borrowable not in ("", "0") else ""
    yield (
        f"Pod set {first.pod_set} asks for {first.asked} {first.resource} in flavor {first.flavor}. "
        f"Free is {first.free} now{borrowed}; with nobody else there it would be {first.most}. "
        f"What sets the limit is {_limit(first)}."
    )
    yield f"What would help: {first.hint.replace(first.refused_by, _limit(first))}."
    others = [
        f"  {lack.resource} in {lack.flavor}: asked {lack.asked}, free {lack.free} ({lack.refused_by})"
        for lack in lacks[1:]
    ]
    if others:
        yield "\n".join(["Short as well:", *others])


def _estimated(estimate: StartEstimate, now: datetime) -> str:
    """In how long it will probably start, and how often such estimates held."""
    soonest, latest = ((at - now).total_seconds() for at in (estimate.p50, estimate.p90))
    if soonest > 0:
        text = f"It will probably start in {duration(soonest)} to {duration(latest)}"
    elif latest > 0:
        text = f"It will probably start within {duration(latest)}"
    else:
        text = "It should have started already, by the last estimate"
    if estimate.share_held is None:
        return f"{text}."
    return f"{text}; {estimate.share_held:.0%} of past estimates held."


def _limit(lack: Lack) -> str:
    """`Cohort research: nominalQuota` in words."""
    node, _, what = lack.refused_by.rpartition(": ")
    return f"the {what} of {node}" if node else lack.refused_by


def _tried(attempt: Attempt) -> str:
    obstacles = "; ".join(attempt.obstacles) or attempt.reason or "fits"
    return f"{attempt.flavor} for {attempt.pod_set}: {obstacles}"


def _admitted(who: str, workload: Workload, explanation: Explanation, now: datetime) -> str:
    admitted = workload.conditions.get("Admitted")
    since = "" if admitted is None else _since(admitted, now)
    if admitted is not None and not admitted.holds:
        return f"{who} has quota in ClusterQueue {explanation.cluster_queue}, but may not start yet: {_said(admitted)}"
    return f"{who} does not wait: it was admitted by ClusterQueue {explanation.cluster_queue}{since}."


def _checks(workload: Workload) -> list[str]:
    waited_for = [
        f"  {check['name']}: {check['state']}" + (f": {check['message']}" if check.get("message") else "")
        for check in workload.document.get("status", {}).get("admissionChecks", ())
        if check.get("state") != "Ready"
    ]
    return ["\n".join(["Admission checks that are not ready:", *waited_for])] if waited_for else []


def _said(condition: Condition) -> str:
    return f"{condition.reason}: {condition.message}" if condition.message else f"{condition.reason}."


def _since(condition: Condition, now: datetime) -> str:
    return f" {_ago(condition.since, now)}" if condition.since else ""


def _ago(at: datetime, now: datetime) -> str:
    return f"{age(at.isoformat(), now)} ago"
