"""Hash of a pod template, used in the names of ReplicaSets and ControllerRevisions."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

HASH_LABEL = "pod-template-hash"
# Without vowels and similar characters, as in all names that Kubernetes generates.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def template_hash(template: Object) -> str:
    """Return up to ten letters and digits that depend on the content of the template only."""
    number = zlib.crc32(orjson.dumps(template, option=orjson.OPT_SORT_KEYS))
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(number))
