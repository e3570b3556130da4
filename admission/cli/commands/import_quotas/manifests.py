"""Manifests of `sluice apply` and `diff`: queue objects, and quota objects of another scheduler that are translated."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from admission.cli.arguments.object_files import print_note, read_objects
from admission.cli.errors import BadFlag, CommandError, Unreadable
from admission.cli.output.manifests import present
from admission.cli.output.outcomes import TranslationSource
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
    """Reads files, and keeps origins and notes of the objects that were translated."""

    namespace: str | None
    """Namespace in which each translated queue gets a LocalQueue; None: only in those that the scheduler names."""
    flags: TranslationFlags
    writes: bool = False
    """Whether the objects will be written: a translation that requires a capacity then fails without it."""
    prints_notes: bool = True
    """Whether the notes on translated objects are printed to standard error."""
    origins: dict[tuple[str, str, str], TranslationSource] = field(default_factory=dict)
    """Origins of translated objects, by key (kind, namespace, name)."""
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """(title, reason) of documents that were not translated."""
    notes: list[str] = field(default_factory=list)
    """Notes on the files as a whole, which are printed to standard error, too."""
    _translation: Translation | None = None
    _flavor: QueueObject | None = None
    """The flavor of the translation."""

    def read(self, paths: Sequence[str], *, namespace: str) -> list[QueueObject]:
        """Return all objects, each behind those that it refers to; `namespace` is that of LocalQueues that name none.

        Raises Unreadable with every fault, BadFlag for a useless `--capacity`, and CommandError for a missing one.
        """
        objects = read_objects(paths, namespace=namespace, translate=self._translate, note=self._note)
        if self.flags.capacity and self._flavor is None:
            raise BadFlag("--capacity is for quota objects of other schedulers, but the files contain none")
        return objects

    async def note_missing_queues(self, sluice: Sluice) -> None:
        """Add a note on each queue that the server has in a Cohort of the translation, but the files do not have."""
        if self._translation is None:
            return
        from admission.cli.commands.import_quotas.notes import missing_queue_notes

        present = [item async for item in sluice.cohorts.list()], [item async for item in sluice.cluster_queues.list()]
        for note in missing_queue_notes(self._translation, chain(*present)):
            self._note(note)

    async def existing_flavor(self, sluice: Sluice, item: QueueObject) -> Answer | None:
        """Return the server's object if the item is the translation's flavor and exists: it is not replaced then."""
        return await present(sluice, item) if item is self._flavor else None

    def note_once(self, text: str) -> None:
        """Add a note on the files as a whole, unless it was added before."""
        if text not in self.notes:
            self._note(text)

    def _note(self, text: str) -> None:
        self.notes.append(text)
        print_note(text)

    def _translate(self, foreign: Mapping[str, Sequence[Document]]) -> list[tuple[str, QueueObject]]:
        """Translate documents, given by the name of their import, to (prefix of messages, queue object).

        Raises InvalidObject, Unreadable, CommandError.
        """
        from admission.cli.commands.import_quotas.notes import CAPACITY_REQUIRED, capacity_notes, print_notes
        from admission.cli.commands.import_quotas.quota_tree import translate
        from admission.cli.commands.import_quotas.systems import SYSTEMS

        if len(foreign) > 1:
            names = " and ".join(SYSTEMS[source].name for source in foreign)
            raise Unreadable(
                f"the files contain queues of {names}, each of which would get all of --capacity; apply them separately"
            )
        ((source, documents),) = foreign.items()
        system = SYSTEMS[source]
        found = system.read(documents, (self.namespace,) if self.namespace else ())
        if not found.queues:
            raise Unreadable(f"{documents[0].source}: contains no {system.document} to import")
        translation = translate(found.queues, flavor=self.flags.flavor, capacity=self.flags.capacity)
        self._translation = translation
        print_notes(found, translation, of_objects=self.prints_notes)
        missing = capacity_notes(translation)
        self.origins = {each.item.key: TranslationSource(each.title, each.notes) for each in translation.objects}
        self.left_out += found.skipped
        self.notes += missing
        if self.writes and missing:
            raise CommandError(CAPACITY_REQUIRED)
        if not any(isinstance(each.item, LocalQueue) for each in translation.objects):
            self._note(f"no LocalQueue points to the {system.plural} of {system.name}: use -n NAMESPACE to create them")
        self._flavor = next(each.item for each in translation.objects if isinstance(each.item, ResourceFlavor))
        return [(each.title, each.item) for each in translation.objects]
