"""Labels that Sluice adds to objects, recorded in an annotation so that an uninstall removes no user's labels.

The annotation serves no other purpose: a user who writes or removes it changes only what an uninstall removes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.kinds.base import QUEUE_NAME
from admission.kinds.common import NOTHING
from admission.kinds.declared_pods import POD_SET
from admission.kinds.grouping import GROUP_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.kinds.base import Object

ADDED_LABELS: Final = "sluice.dev/given-labels"
"""Annotation: `KEY=VALUE,...`; neither keys nor values contain a comma or an equals sign."""
LABEL_KEYS: Final = (QUEUE_NAME, GROUP_NAME[0], POD_SET)
"""Labels that Sluice adds to objects."""


def annotation_value(labels: Mapping[str, str]) -> str:
    """Return the annotation's value for these labels."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def added_labels(obj: Object) -> dict[str, str]:
    """Return the labels that Sluice added and that are unchanged; one with another value now is its user's."""
    metadata = obj["metadata"]
    annotation = str((metadata.get("annotations") or NOTHING).get(ADDED_LABELS, ""))
    added = dict(part.partition("=")[::2] for part in annotation.split(","))
    labels = metadata.get("labels") or NOTHING
    return {key: added[key] for key in LABEL_KEYS if key in added and labels.get(key) == added[key]}
