"""Manifests of which some are quota objects of another scheduler: those are translated as `sluice import` does it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from admission.cli.arguments.files import print_note, read_objects
from admission.cli.errors import BadFlag, CommandError, Unreadable
from admission.cli.output.outcomes import Origin
from admission.model.queues import LocalQueue, ResourceFlavor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.cli.arguments.translation import TranslationFlags
    from admission.cli.commands.import_quotas.quota_tree import Translation
    from admission.client import Sluice
    from admission.client.transport import Document as Answer
    from admission.model.manifests import Document
    from admission.model.queues import QueueObject


@dataclass(slots=True)
class Manifests:
    """What files hold: queue objects, and those that the queues of another scheduler become."""

    namespace: str | None
    """Where each of those queues gets a LocalQueue; None: nowhere, but where the scheduler itself says so."""
    flags: TranslationFlags
    writes: bool = False
    """Whether they are to be written, for which nothing may be missing that a translation needs."""
    told_below: bool = False
    """Whether the notes on an object are told with it, and not here."""
    origins: dict[tuple[str, str, str], Origin] = field(default_factory=dict)
    """By key of an object of a translation."""
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """Documents that nothing was made of, and why."""
    notes: list[str] = field(default_factory=list)
    """What is to be said of the files as a whole; it is told on standard error, too."""
    _made: Translation | None = None
    _flavor: QueueObject | None = None

    def read(self, paths: Sequence[str], *, namespace: str) -> list[QueueObject]:
        """All objects, each behind those that it names; `namespace` is that of LocalQueues that say none.

        Raises Unreadable with every fault found; BadFlag, CommandError.
        """
        objects = read_objects(paths, namespace=namespace, translate=self._translate, note=self._note)
        if self.flags.capacity and self._flavor is None:
            raise BadFlag("--capacity is for quota objects of other schedulers, and there is none in the files")
        return objects

    async def tell_of_others(self, sluice: Sluice) -> None:
        """Note what the server has in the Cohorts of a translation, and the files have not."""
        if self._made is None:
            return
        from admission.cli.commands.import_quotas.telling import left_out

        present = [item async for item in sluice.cohorts.list()], [item async for item in sluice.cluster_queues.list()]
        for note in left_out(self._made, chain(*present)):
            self._note(note)

    async def kept(self, sluice: Sluice, item: QueueObject) -> Answer | None:
        """The one that the server has, if it is the flavor of a translation: that stays as it is."""
        from admission.cli.commands.diff import present

        return await present(sluice, item) if item is self._flavor else None

    def _note(self, text: str) -> None:
        self.notes.append(text)
        print_note(text)

    def _translate(self, foreign: Mapping[str, Sequence[Document]]) -> list[tuple[str, QueueObject]]:
        """What becomes of documents, by the import that reads them, each with what opens a message about it.

        Raises InvalidObject, Unreadable, CommandError.
        """
        from admission.cli.commands.import_quotas.quota_tree import translate
        from admission.cli.commands.import_quotas.systems import SYSTEMS
        from admission.cli.commands.import_quotas.telling import NOTHING_WRITTEN, tell, unbounded

        if len(foreign) > 1:
            names = " and ".join(SYSTEMS[source].name for source in foreign)
            raise Unreadable(f"the files hold queues of {names}, which would share one --capacity; apply them by turns")
        ((source, documents),) = foreign.items()
        system = SYSTEMS[source]
        found = system.read(documents, (self.namespace,) if self.namespace else ())
        if not found.queues:
            raise Unreadable(f"{documents[0].source}: there is no {system.reads} to take over")
        made = self._made = translate(found.queues, flavor=self.flags.flavor, capacity=self.flags.capacity)
        tell(found, made, of_objects=not self.told_below)
        missing = unbounded(made)
        self.origins = {each.item.key: Origin(each.title, each.notes) for each in made.made}
        self.left_out += found.skipped
        self.notes += missing
        if self.writes and missing:
            raise CommandError(NOTHING_WRITTEN)
        if not any(isinstance(each.item, LocalQueue) for each in made.made):
            self._note(f"no LocalQueue leads to the {system.what} of {system.name}: give -n")
        self._flavor = next(each.item for each in made.made if isinstance(each.item, ResourceFlavor))
        return [(each.title, each.item) for each in made.made]
