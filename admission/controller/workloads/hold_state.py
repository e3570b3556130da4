"""Why a pending workload takes no part in scheduling cycles: deactivated, misconfigured, on hold, gated, running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.controller.state.workload_change import DEACTIVATED
from admission.engine.vocabulary import ADMISSION_GATED, BEING_DELETED, MISCONFIGURED, ON_HOLD, PENDING_EVALUATION
from admission.model import sentences
from admission.store.records import State

if TYPE_CHECKING:
    from admission.controller.state.context import Reading
    from admission.controller.state.tracked import Tracked
    from admission.kinds.base import Observed
    from admission.store.records import Order, WorkloadRecord


def hold_state(seen: Observed, reading: Reading, tracked: Tracked | None) -> tuple[bool, str, str]:
    """Return (on_hold, reason, message) of a pending workload: why it takes no part in scheduling cycles.

    (False, PendingEvaluation, "") if it does. `tracked`: None for a new workload.
    """
    if tracked is not None and not tracked.record.active:
        return deactivation(tracked)
    if reading.fault:
        return True, MISCONFIGURED, reading.fault
    if tracked is not None and tracked.refused is not None and tracked.refused[0] == seen.generation:
        return True, MISCONFIGURED, tracked.refused[1]
    if tracked is not None and tracked.order is not None and tracked.order.held:
        return True, ON_HOLD, _held_message(tracked.record, tracked.order)
    if seen.on_hold:
        return True, ON_HOLD, sentences.HELD_BY_USER
    if seen.gated_by:
        return True, ADMISSION_GATED, sentences.gated_by(seen.gated_by)
    if seen.deleting:
        return True, BEING_DELETED, sentences.BEING_DELETED
    if seen.waits_for and seen.suspended:
        return True, PENDING_EVALUATION, seen.waits_for
    if not seen.suspended or seen.active:
        return True, PENDING_EVALUATION, sentences.RUNS_WITHOUT_QUOTA
    return False, PENDING_EVALUATION, ""


def _held_message(record: WorkloadRecord, order: Order) -> str:
    """Return the message that names who has put it on hold and why.

    Once given it is kept: the order names the author of its last change, which may concern something else.
    """
    is_held = record.state is State.PENDING and record.reason == ON_HOLD
    if is_held and not record.message.startswith(sentences.HELD_BY_LABEL):
        return record.message
    return sentences.held_by_admin(order.author, order.reason)


def deactivation(tracked: Tracked) -> tuple[bool, str, str]:
    """Return (on_hold, reason, message) of a deactivated workload."""
    record, order = tracked.record, tracked.order
    if record.reason.startswith(DEACTIVATED):
        return True, record.reason, record.message
    if order is None or order.active is not False:
        return True, DEACTIVATED, sentences.deactivated()
    return True, DEACTIVATED, sentences.deactivated(author=order.author, reason=order.reason)
