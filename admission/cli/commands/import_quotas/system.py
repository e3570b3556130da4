"""Description of a scheduler whose quota can be imported, and of the queues found in its documents."""

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
class FoundQuotas:
    """Queues found in documents."""

    queues: list[Queue]
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """(title, reason) of documents that are not imported."""


@dataclass(frozen=True, slots=True)
class System:
    """A scheduler whose quota can be imported."""

    name: str
    """Its name for users: `Volcano`."""
    plural: str
    """Its name for queues: `ElasticQuotas`."""
    document: str
    """The document that is read, for the message that none was found: `Queue of scheduling.volcano.sh`."""
    export_command: str
    """Command that prints the documents of a cluster."""
    read: Callable[[Iterable[Document], Sequence[str]], FoundQuotas]
    """Reads queues from documents, with LocalQueues in these namespaces. Raises InvalidObject."""


def objects_of(
    documents: Iterable[Document], group: str, kind: str, skipped: list[tuple[str, str]]
) -> Iterator[Fields]:
    """Yield the objects of one kind, in any version; others are added to `skipped`. Raises InvalidObject."""
    for document in documents:
        body = document.body
        found = str(body.get("kind", ""))
        metadata = body.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        title = f'{kind} "{clean(str(name))}"'
        if str(body.get("apiVersion", "")).partition("/")[0] != group or found != kind:
            skipped.append((clean(f"{found.lower() or 'document'}/{name or '-'}"), f"is not a {kind} of {group}"))
            continue
        if not isinstance(name, str) or not is_dns_subdomain(name):
            fault = "is missing or not a string" if not isinstance(name, str) else f'"{clean(name)}" is not valid'
            message = f'{fault}: use lower-case letters, digits, "-" and "."'
            raise InvalidObject([("metadata.name", message)], subject=f"{document.source}: {kind}")
        yield Fields(body, subject=f"{document.source}: {title}")
