"""Outcomes of `sluice apply`, by object: lines that are printed as they come, or one document at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from admission.cli.arguments.objects import qualified_name
from admission.cli.output.printing import WritingFlags, print_line, print_outcome, serialized
from admission.model.manifests import to_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.client.transport import Document
    from admission.model.queues import QueueObject


@dataclass(frozen=True, slots=True)
class TranslationSource:
    """Source of an object that was translated from another scheduler's."""

    made_of: str = ""
    """Title of the translated object: `volcano.yaml: document 1: Queue "web"`; empty: not translated."""
    notes: tuple[str, ...] = ()
    """A message for each field without an equivalent."""


_NO_ORIGIN: Final = TranslationSource()


@dataclass(slots=True)
class Outcomes:
    """Prints the outcome of each object in the format of `-o`.

    Lines are printed by `add`; the List of `-o json`, `yaml` and `jsonpath` is printed by `finish`.
    """

    output: str | None
    """Value of `-o`; None: a line for each object."""
    writing: WritingFlags
    origins: Mapping[tuple[str, str, str], TranslationSource]
    """Origins of translated objects, by key (kind, namespace, name)."""
    _items: list[Document] = field(default_factory=list)
    _report: list[dict[str, Any]] = field(default_factory=list)

    def add(self, item: QueueObject, outcome: str, document: Document | None = None) -> None:
        """Add an object with its outcome, such as `created`. `document` is the response; None: no request was sent."""
        origin = self.origins.get(item.key, _NO_ORIGIN)
        what = qualified_name(item.kind.lower(), item.name)
        if self.output == "name":
            print_line(what)
        elif self.output in (None, "wide"):
            details = [f"translated from {origin.made_of}"] if origin.made_of else []
            details += origin.notes
            print_outcome(what, outcome, self.writing, document, details=details if self.output else ())
        else:
            named = {"kind": item.kind, "namespace": item.metadata.namespace, "name": item.name, "outcome": outcome}
            entry = named | {"madeOf": origin.made_of, "notes": list(origin.notes)}
            self._report.append({key: value for key, value in entry.items() if value})
            self._items.append(to_manifest(item) if document is None else document)

    def finish(self, left_out: Sequence[tuple[str, str]], notes: Sequence[str]) -> None:
        """Print the List, if the format has one.

        `left_out` are (title, reason) of documents that were not translated, `notes` messages about all the files.
        """
        if self.output in (None, "wide", "name"):
            return
        report = {
            "dryRun": self.writing.dry_run,
            "objects": self._report,
            "leftOut": [{"document": what, "why": why} for what, why in left_out],
            "notes": list(notes),
        }
        document = {"apiVersion": "v1", "kind": "List", "items": self._items, "report": report}
        # A JSONPath template contains its own newlines, as with kubectl.
        click.echo(serialized(document, self.output), nl=not self.output.startswith("jsonpath="))
