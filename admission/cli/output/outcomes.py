"""What has become of each object in files: told at once, line by line, or at the end as one document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from admission.cli.arguments.objects import shown
from admission.cli.output.printing import Writing, print_line, print_outcome, serialized
from admission.model.manifests import to_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.client.transport import Document
    from admission.model.queues import QueueObject


@dataclass(frozen=True, slots=True)
class Origin:
    """Of an object that stands in no file as it is: what it was made of, and what of that it has not."""

    made_of: str = ""
    notes: tuple[str, ...] = ()


_ITSELF: Final = Origin()


@dataclass(slots=True)
class Outcomes:
    """Takes the objects in the order in which they are written, and prints them as `output`, the value of `-o`, says.

    Lines are printed as objects come; a document has to wait for `end`.
    """

    output: str | None
    writing: Writing
    origins: Mapping[tuple[str, str, str], Origin]
    """By key of the object."""
    _items: list[Document] = field(default_factory=list)
    _report: list[dict[str, Any]] = field(default_factory=list)

    def add(self, item: QueueObject, outcome: str, document: Document | None = None) -> None:
        """`document` is the server's answer; None: it was not asked."""
        origin = self.origins.get(item.key, _ITSELF)
        what = shown(item.kind.lower(), item.name)
        if self.output == "name":
            print_line(what)
        elif self.output in (None, "wide"):
            details = [f"made of {origin.made_of}"] if origin.made_of else []
            details += origin.notes
            print_outcome(what, outcome, self.writing, document, details=details if self.output else ())
        else:
            named = {"kind": item.kind, "namespace": item.metadata.namespace, "name": item.name, "outcome": outcome}
            entry = named | {"madeOf": origin.made_of, "notes": list(origin.notes)}
            self._report.append({key: value for key, value in entry.items() if value})
            self._items.append(to_manifest(item) if document is None else document)

    def end(self, left_out: Sequence[tuple[str, str]], notes: Sequence[str]) -> None:
        """Print the document, if one is wanted. `left_out`: what nothing was made of, and why; `notes`: on all."""
        if self.output in (None, "wide", "name"):
            return
        report = {
            "dryRun": self.writing.dry_run,
            "objects": self._report,
            "leftOut": [{"document": what, "why": why} for what, why in left_out],
            "notes": list(notes),
        }
        document = {"apiVersion": "v1", "kind": "List", "items": self._items, "report": report}
        # A template says itself where lines end.
        click.echo(serialized(document, self.output), nl=not self.output.startswith("jsonpath="))
