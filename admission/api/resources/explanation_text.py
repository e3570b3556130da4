"""Texts of `sluice why` and `sluice position` for a workload: the answer with current numbers, and the details.

The API writes the paragraphs, so that the command line, the dashboard and the Python client show the same ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.api.resources.start_estimates import NoEstimate, StartEstimate
from admission.apimachinery.tables import spoken
from admission.engine import needed_now, raises_for
from admission.engine.vocabulary import (
    EXCEEDS_MAX_QUOTA,
    HOPELESS,
    NO_MATCHING_FLAVOR,
    PODS_UNSCHEDULED,
    WAITING_FOR_QUOTA,
)
from admission.model import sentences
from admission.model.names import listed
from admission.model.pod_set_names import titled
from admission.model.resource_words import amount_number, amount_text, resource_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from admission.engine.explain import Explanation
    from admission.engine.lacks import Lack

_LONG_STOP = 120.0
"""Seconds after an eviction from which it is said what keeps pods from ending: most have a grace period of 30 s."""
_OF_PREEMPTION = re.compile(r" \(UID: [^)]*\)|; preempt(?:or|ee) path: \S+?(?=;|\.(?: |$)|$)")
"""Uid and paths in Kueue's message about a preemption, which the history has in full."""
_FLAVORS = 5
"""Most flavors and resources with missing quota whose limits are listed."""
_REMEDIES = 2
"""Most remedies in the answer; all others are details."""
NO_ESTIMATE: Final = NoEstimate()


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
    lost: str = ""
    """Why it is not known whether it runs in its cluster; empty: it is, or it holds no quota."""
    stopping_since: float | None = None
    """When it was evicted, if its pods have not all ended since."""


class Explained(NamedTuple):
    """The explanation as paragraphs. Lines of a list are indented by two spaces."""

    sentences: list[str]
    """The answer: a headline, then what matters beside it. The numbers are those of the explanation's `lacks`."""
    details: list[str]
    """Everything else."""


def paragraphs(
    workload: ExplainedWorkload,
    found: Explanation | None,
    *,
    now: float,
    remedies: Sequence[str] = (),
    estimate: StartEstimate | NoEstimate = NO_ESTIMATE,
    planned: str = "",
) -> Explained:
    """Return the explanation as text.

    found: the engine's explanation; None for a finished workload, or one that the engine does not know.
    now: Unix time (s).
    remedies: changes with which it would start now, the best ones first.
    planned: a sentence about more quota by the calendar of its ClusterQueue; empty: there is none.
    """
    if workload.finished_at is None and (found is None or found.state == "Pending"):
        hints = [*dict.fromkeys(remedies)]
        sentences = [_headline(workload, found, estimate, now), *_beside(workload, found, estimate)]
        if hints:
            sentences.append(f"It could start now {', or '.join(hints[:_REMEDIES])}.")
        if planned:
            sentences.append(planned)
        return Explained(sentences, [*_details(workload, found, hints[_REMEDIES:], now)])
    return Explained(_not_waiting(workload, found, now), [])


def _not_waiting(workload: ExplainedWorkload, found: Explanation | None, now: float) -> list[str]:
    if workload.finished_at is not None:
        return [f"{workload.title} ended {_since(workload.finished_at, now)} ago: {_reason_text(workload)}"]
    assert found is not None
    reason_text = _reason_text(workload)
    if found.state == "Evicting":
        texts = [
            f"{workload.title} is being stopped; then its quota in ClusterQueue {found.cluster_queue} is free.",
            reason_text,
            *filter(None, [workload.lost]),
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
            *_placement(found),
        ]
    more = [text for text in (workload.lost, found.drained, found.lowered, found.protected, found.moves) if text]
    return [f"{workload.title} does not wait: it is admitted{since}.", reason_text, *more]


def place(
    workload: ExplainedWorkload,
    found: Explanation | None,
    *,
    name: str,
    now: float,
    estimate: StartEstimate | NoEstimate = NO_ESTIMATE,
) -> str:
    """Return its position in the queues, what it needs and when it probably starts, as one sentence."""
    if workload.finished_at is not None:
        return f"{name} does not wait: it has ended."
    if found is not None and found.state != "Pending":
        return f"{name} does not wait: {_state_text(workload, found)}."
    if found is None or not found.position_in_cluster_queue:
        return f"{name} has no position in its queue: {_reason_text(workload)}"
    positions = (
        f"{name}: position {found.position_in_cluster_queue} of {found.waiting_in_cluster_queue} in ClusterQueue "
        f"{found.cluster_queue}, {found.position_in_local_queue} of {found.waiting_in_local_queue} in LocalQueue "
        f"{workload.local_queue}"
    )
    if isinstance(estimate, StartEstimate):
        positions += f"; {estimate.text(now)}"
    if workload.reason == WAITING_FOR_QUOTA and found.lacks:
        return f"{positions}; needs {needed_now(found.lacks)}."
    return f"{positions}. {_reason_text(workload)}"


def _state_text(workload: ExplainedWorkload, found: Explanation) -> str:
    if found.state != "Admitted":
        return "it is being stopped"
    if workload.reason == PODS_UNSCHEDULED:
        return f"it is admitted, but its pods do not all run. {workload.message.rstrip('.')}"
    return "it is admitted"


def _headline(
    workload: ExplainedWorkload, found: Explanation | None, estimate: StartEstimate | NoEstimate, now: float
) -> str:
    """Return what it needs and what is free, or else its reason; its position, and when it probably starts."""
    if workload.reason in HOPELESS:
        if found is None or not found.lacks or workload.reason == NO_MATCHING_FLAVOR:
            return f"{workload.title} can not be admitted as it is."
        return f"{workload.title} can not be admitted as it is: needs {needed_now(found.lacks)}."
    if found is not None and found.lacks and workload.reason == WAITING_FOR_QUOTA:
        parts = [f"{workload.title} needs {needed_now(found.lacks)}"]
    else:
        parts = [f"{workload.title} waits"]
    if found is not None and found.position_in_cluster_queue:
        parts.append(f"position {found.position_in_cluster_queue} of {found.waiting_in_cluster_queue}")
    if isinstance(estimate, StartEstimate):
        parts.append(estimate.text(now))
    return f"{'; '.join(parts)}."


def _beside(
    workload: ExplainedWorkload, found: Explanation | None, estimate: StartEstimate | NoEstimate
) -> Iterator[str]:
    """Yield what else matters: the reason, if it is not in the headline, its last eviction, who is in its way."""
    has_numbers = found is not None and found.lacks and workload.reason in (WAITING_FOR_QUOTA, EXCEEDS_MAX_QUOTA)
    if not has_numbers:
        yield _reason_text(workload)
    elif found is not None and workload.reason == EXCEEDS_MAX_QUOTA:
        yield sentences.ask_for_less(raises_for(found.lacks))
    if found is not None:
        yield from _placement(found)
        if beside := [*map(str, found.lent), *((*found.elsewhere, *found.passed_over) if has_numbers else ())]:
            yield " ".join(beside)
        if found.lowered:
            yield found.lowered
    if workload.evicted and workload.evicted != workload.message:
        yield f"It held quota before, and lost it: {_OF_PREEMPTION.sub('', workload.evicted)}"
    if found is None or workload.reason in HOPELESS:
        return
    if protected := [hint.next_at for hint in found.preemption_hints if hint.next_at is not None]:
        yield sentences.others_later(min(protected))
    in_the_way = []
    if found.ahead:
        in_the_way.append(f"Ahead: {_named(found.ahead_first, found.ahead - len(found.ahead_first))}.")
    if found.holders or found.other_holders:
        in_the_way.append(f"In use by {_named([*_holders(found)], found.other_holders)}.")
    if in_the_way:
        yield " ".join(in_the_way)
    if has_numbers and isinstance(estimate, NoEstimate) and estimate.why:
        yield estimate.why


def _placement(found: Explanation) -> Iterator[str]:
    if found.placement:
        yield " ".join(found.placement)


def _named(names: Sequence[str], others: int) -> str:
    """Return `a, b and 3 others`."""
    if not others:
        return listed(names)
    counted = f"{others} other{'s' if others > 1 else ''}" if names else f"{others} workload{'s' if others > 1 else ''}"
    return f"{', '.join(names)} and {counted}" if names else f"{counted} of others"


def _holders(found: Explanation) -> Iterator[str]:
    for holder in found.holders:
        used = [
            amount_text(lack.resource, amount)
            for lack, amount in zip(found.lacks, holder.amounts, strict=True)
            if amount
        ]
        yield f"{holder.key} ({', '.join(used)})"


def _details(
    workload: ExplainedWorkload, found: Explanation | None, remedies: Sequence[str], now: float
) -> Iterator[str]:
    """Yield what only some users want to know."""
    queue = found.cluster_queue if found is not None else ""
    where = f"ClusterQueue {queue}" if queue else f"LocalQueue {workload.local_queue}"
    text = f"It has been in {where} for {_since(workload.queued_at, now)}"
    if found is not None and found.position_in_local_queue:
        text += (
            f"; position {found.position_in_local_queue} of {found.waiting_in_local_queue} in LocalQueue "
            f"{workload.local_queue}"
        )
    yield f"{text}."
    if found is None:
        return
    if found.lacks:
        if workload.reason in (WAITING_FOR_QUOTA, EXCEEDS_MAX_QUOTA):
            yield _reason_text(workload)
        yield "\n".join(["Limits:", *(f"  {_limits(lack)}" for lack in found.lacks[:_FLAVORS])])
    unfit = [
        f"  {attempt.flavor}, for {titled(pod_set)}: {', '.join(map(str, attempt.causes))}"
        for pod_set, attempt in found.attempts
        if attempt.reason == NO_MATCHING_FLAVOR
    ]
    if unfit:
        yield "\n".join(["Flavors that are none for it:", *dict.fromkeys(unfit)])
    hints = dict.fromkeys(hint.hint for hint in found.preemption_hints)  # some are the same for all flavors
    if hints:
        yield "\n".join(["Preemption:", *(f"  {hint}" for hint in hints)])
    if remedies:
        yield "\n".join(["It could also start now", *(f"  {hint}" for hint in remedies)])


def _limits(lack: Lack) -> str:
    """Return the limits that are too low, and what could be borrowed: with that a user can ask an admin for more."""
    limits = [f"{amount_number(lack.resource, by)} too little by {sentences.limit_of(at)}" for at, by in lack.limits]
    borrowed = f"; {amount_text(lack.resource, lack.borrowable)} of what is free would be borrowed"
    return f"{resource_word(lack.resource)} ({lack.flavor}): {listed(limits)}{borrowed if lack.borrowable else ''}"


def _reason_text(workload: ExplainedWorkload) -> str:
    return f"{workload.reason}: {workload.message}" if workload.message else f"{workload.reason}."


def _since(at: float, now: float) -> str:
    return spoken(now - at)
