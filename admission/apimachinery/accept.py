"""Content negotiation by the `Accept` header: whole objects, metadata only, or table rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from admission.apimachinery.errors import NotAcceptable

if TYPE_CHECKING:
    from collections.abc import Collection

JSON, YAML = "application/json", "application/yaml"
PLAIN, PARTIAL, PARTIAL_LIST, TABLE = "", "PartialObjectMetadata", "PartialObjectMetadataList", "Table"


@dataclass(frozen=True, slots=True)
class Format:
    """The representation that a client asked for."""

    form: str = PLAIN
    media: str = JSON


@lru_cache(maxsize=256)
def negotiate(accept: str, media_types: Collection[str] = (JSON, YAML)) -> Format:
    """The first supported representation of the header `Accept`. Raises NotAcceptable."""
    if not accept.strip():
        return Format()
    for entry in accept.split(","):
        media, *parts = (part.strip() for part in entry.split(";"))
        parameters = dict(part.split("=", 1) for part in parts if "=" in part)
        form = parameters.get("as", PLAIN)
        if form and (parameters.get("g"), parameters.get("v")) != ("meta.k8s.io", "v1"):
            continue
        if form in (PLAIN, PARTIAL, PARTIAL_LIST, TABLE):
            if media in ("*/*", "application/*"):
                return Format(form)
            if media in media_types:
                return Format(form, media)
    raise NotAcceptable(f"only the following media types are accepted: {', '.join(media_types)}")
