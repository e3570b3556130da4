"""Content negotiation by the `Accept` header: whole objects, PartialObjectMetadata or Table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from admission.apimachinery.errors import NotAcceptable

if TYPE_CHECKING:
    from collections.abc import Collection

JSON, YAML = "application/json", "application/yaml"
PLAIN, PARTIAL, PARTIAL_LIST, TABLE = "", "PartialObjectMetadata", "PartialObjectMetadataList", "Table"
"""Kinds of `meta.k8s.io/v1` that objects can be converted to (`as=`); PLAIN: not converted."""


@dataclass(frozen=True, slots=True)
class Format:
    """A negotiated representation: the kind that objects are converted to, and the media type."""

    form: str = PLAIN
    media: str = JSON


@lru_cache(maxsize=256)
def negotiate(accept: str, media_types: Collection[str] = (JSON, YAML)) -> Format:
    """Return the first supported representation in the header `Accept`. Raises NotAcceptable."""
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
