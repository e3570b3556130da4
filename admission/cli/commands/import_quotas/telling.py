"""What is said of a translation: each field without an equivalent, what was left out, and what nobody has said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.cli.commands.import_kueue.plan import title
from admission.cli.output.printing import print_line
from admission.model.names import listed
from admission.model.queues import ClusterQueue, Cohort

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.cli.commands.import_quotas.quota_tree import Translation
    from admission.cli.commands.import_quotas.system import Found
    from admission.model.queues import QueueObject

NOTHING_WRITTEN: Final = "nothing was written, as queues could use less than before; give --capacity"


def tell(found: Found, made: Translation, *, of_objects: bool = True) -> None:
    """All of it as notes, to standard error; that of the objects made only with `of_objects`."""
    notes = [f"{title(each.item)}: {note}" for each in made.made for note in each.notes if of_objects]
    notes += [f"{what}: {note}" for what, note in found.skipped]
    for note in (*notes, *unbounded(made)):
        print_line(f"note: {note}", err=True)


def unbounded(made: Translation) -> list[str]:
    """A sentence if queues may use more than they are guaranteed, and nobody says how much there is."""
    if not made.unbounded:
        return []
    example = "=...,".join(made.unbounded[:3]) + "=..."
    note = (
        f"some queues may use more of {listed(made.unbounded)} than they are guaranteed, and nothing says how much "
        "there is: they can only borrow what others are guaranteed; say what the nodes have by "
        f"--capacity {example}"
    )
    return [note]


def left_out(made: Translation, present: Iterable[QueueObject]) -> list[str]:
    """A sentence for each queue that is there in a Cohort of the translation, and not among what it was made of.

    What nobody is guaranteed of the capacity becomes quota of the Cohort at the top: its guarantee is not taken off.
    """
    known = {(each.item.kind, each.item.name) for each in made.made}
    notes = []
    for item in present:
        above = _parent_of(item)
        if above and ("Cohort", above) in known and (item.kind, item.name) not in known:
            notes.append(
                f'{title(item)}: is in Cohort "{above}" and not in the files, so that its quota comes on top of '
                "--capacity: give all queues at once, or delete it"
            )
    return notes


def _parent_of(item: QueueObject) -> str:
    """The Cohort that it is in; empty: in none."""
    if isinstance(item, ClusterQueue):
        return item.spec.cohort_name or ""
    return (item.spec.parent_name or "") if isinstance(item, Cohort) else ""
