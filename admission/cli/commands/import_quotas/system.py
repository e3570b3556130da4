"""What each of the systems tells about itself, and what is found of it in documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from admission.cli.commands.import_quotas.fields import Fields
from admission.model.errors import InvalidObject
from admission.model.names import is_dns_subdomain
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from admission.cli.commands.import_quotas.quota_tree import Queue
    from admission.model.manifests import Document


@dataclass(frozen=True, slots=True)
class Found:
    """What documents have of a system. `skipped`: the title of what is not taken over, and why."""

    queues: list[Queue]
    skipped: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class System:
    """A scheduler whose quota can be imported."""

    name: str
    """As users call it."""
    what: str
    """What it calls its queues."""
    reads: str
    """What there is none of, for messages."""
    how: str
    """A command that prints it."""
    read: Callable[[Iterable[Document], Sequence[str]], Found]
    """The queues in documents, with LocalQueues in these namespaces; raises InvalidObject for a faulty document."""


def objects_of(
    documents: Iterable[Document], group: str, kind: str, skipped: list[tuple[str, str]]
) -> Iterator[Fields]:
    """The objects of one kind, of whatever version; others are noted in `skipped`."""
    for document in documents:
        body = document.body
        found = str(body.get("kind", ""))
        metadata = body.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        title = f'{kind} "{clean(str(name))}"'
        if str(body.get("apiVersion", "")).partition("/")[0] != group or found != kind:
            skipped.append((clean(f"{found.lower() or 'document'}/{name or '-'}"), f"is no {kind} of {group}"))
            continue
        if not isinstance(name, str) or not is_dns_subdomain(name):
            told = "is missing, or no text" if not isinstance(name, str) else f'"{clean(name)}" is no name'
            message = f'{told}: use lower-case letters, digits, "-" and "."'
            raise InvalidObject([("metadata.name", message)], subject=f"{document.source}: {kind}")
        yield Fields(body, subject=f"{document.source}: {title}")
