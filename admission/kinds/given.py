"""Labels that Sluice gives to what its client gave none: noted, so that an uninstall takes off no label of a user.

The note decides about nothing else: whoever writes one himself, or takes it away, has that alone.
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

GIVEN_LABELS: Final = "sluice.dev/given-labels"
"""Annotation: `KEY=VALUE,...`; neither may have a comma or an equals sign in it."""
GIVEN: Final = (QUEUE_NAME, GROUP_NAME[0], POD_SET)
"""The labels that Sluice ever gives."""


def noted(labels: Mapping[str, str]) -> str:
    """The value of the annotation."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def given_labels(obj: Object) -> dict[str, str]:
    """Those of its labels that Sluice has given it; one that has another value by now is its user's."""
    metadata = obj["metadata"]
    note = str((metadata.get("annotations") or NOTHING).get(GIVEN_LABELS, ""))
    given = dict(part.partition("=")[::2] for part in note.split(","))
    labels = metadata.get("labels") or NOTHING
    return {key: given[key] for key in GIVEN if key in given and labels.get(key) == given[key]}
