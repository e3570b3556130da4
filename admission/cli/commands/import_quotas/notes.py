"""Notes on a translation: fields without an equivalent, documents that were left out, a missing capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.cli.arguments.objects import title
from admission.cli.output.printing import print_line
from admission.model.names import listed
from admission.model.queues import ClusterQueue, Cohort

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.cli.commands.import_quotas.quota_tree import Translation
    from admission.cli.commands.import_quotas.system import FoundQuotas
    from admission.model.queues import QueueObject

CAPACITY_REQUIRED: Final = "nothing was written, because queues could use less than before; use --capacity"
"""Error for a translation with `capacity_notes` that is to be written."""


def print_notes(found: FoundQuotas, translation: Translation, *, of_objects: bool = True) -> None:
    """Print all notes to standard error; those on translated objects only with `of_objects`."""
    notes = [f"{title(each.item)}: {note}" for each in translation.objects for note in each.notes if of_objects]
    notes += [f"{what}: {note}" for what, note in found.skipped]
    for note in (*notes, *capacity_notes(translation)):
        print_line(f"note: {note}", err=True)


def capacity_notes(translation: Translation) -> list[str]:
    """Return a note if queues may use more than their guarantee of resources whose capacity is unknown."""
    if not translation.unbounded:
        return []
    example = "=...,".join(translation.unbounded[:3]) + "=..."
    note = (
        f"some queues may use more {listed(translation.unbounded)} than their guarantee, but the capacity is unknown: "
        "they can only borrow the guarantees of other queues; specify the capacity of the nodes with "
        f"--capacity {example}"
    )
    return [note]


def missing_queue_notes(translation: Translation, present: Iterable[QueueObject]) -> list[str]:
    """Return a note on each queue in `present` that is in a Cohort of the translation, but was not translated with it.

    The capacity that no translated queue is guaranteed becomes quota of the Cohort at the top, from which the
    guarantee of such a queue is not subtracted.
    """
    known = {(each.item.kind, each.item.name) for each in translation.objects}
    notes = []
    for item in present:
        above = _parent_of(item)
        if above and ("Cohort", above) in known and (item.kind, item.name) not in known:
            notes.append(
                f'{title(item)}: is in Cohort "{above}" but not in the files, so that its quota is added to '
                "--capacity: specify all queues together, or delete it"
            )
    return notes


def _parent_of(item: QueueObject) -> str:
    """Return the name of the Cohort above the object; empty: none."""
    if isinstance(item, ClusterQueue):
        return item.spec.cohort_name or ""
    return (item.spec.parent_name or "") if isinstance(item, Cohort) else ""
