"""Warnings of the webhook for users: the path of the field, what is wrong or was reverted, and what to do.

Kubernetes asks webhooks to keep each warning below 120 characters, because API servers truncate long ones.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from webhooks.expressions import queue_like_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from admission.kinds.base import Kind, Object

EVERYTHING_IS_QUEUED: Final = "everything in this namespace is queued"


def missing_queue(labels: Mapping[str, str], kind: Kind, queue: str, namespace: str) -> str:
    """Return the warning that the LocalQueue does not exist."""
    keys = [key for key in kind.conventions.queue_labels if labels.get(key) == queue]
    field = f"{_labels(keys[:1])}: " if keys else ""
    return f'{field}no LocalQueue "{queue}" exists in namespace "{namespace}"; the {kind.kind} waits for it'


def devices_without_quota(kind: Kind) -> str:
    """Return the warning that its pods request devices by claim, and that these have no quota."""
    return f"its pods have resourceClaims, and no DeviceClass has a quota: the {kind.kind} waits"


def misspelled_labels(labels: Mapping[str, str], kind: Kind) -> Iterator[str]:
    """Yield a warning for each label that looks like a queue label and is none."""
    known, pattern = kind.conventions.queue_labels, queue_like_pattern(kind)
    for key in labels:
        if key not in known and re.search(pattern, key):
            nearest = next(iter(get_close_matches(key, known, n=1)), known[0])
            yield f"{_labels([key])}: not a queue label, so the {kind.kind} is not queued; use {nearest}"


def queued_by_rule(kind: Kind, queue: str, source: str) -> str:
    """Return the warning for an object without a queue label; `source` is the rule or field that names its queue."""
    return f'metadata.labels: no queue label, so this {kind.kind} is queued in LocalQueue "{queue}" by {source}'


def label_kept(keys: Iterable[str], why: str) -> str:
    """Return the warning that a removed queue label was restored."""
    return f"{_labels(keys)}: kept, because {why}; name another queue"


def still_suspended(kind: Kind, gate: list[Object]) -> str:
    """Return the warning for an object that was unsuspended in the request that removes it from its queue."""
    field = _field(gate)
    return (
        f"{field}: a {kind.kind} leaves its queue suspended, so it was suspended again; unsuspend it in another request"
    )


def suspended_again(kind: Kind, gate: list[Object]) -> str:
    """Return the warning for a queued object that was unsuspended by a user."""
    field = _field(gate)
    return (
        f"{field}: only Sluice starts a queued {kind.kind}, so it was suspended again; it keeps its place in the queue"
    )


def queued_too_late(kind: Kind) -> str:
    """Return the warning for a queue label added to an existing object, whose pods cannot be gated any more."""
    return f"metadata.labels: a {kind.kind} can only be queued at its creation; delete it and create it again"


def pods_stay_queued(kind: Kind) -> str:
    """Return the warning that labels and annotations of pod templates were restored."""
    return f"the pods of a queued {kind.kind} stay queued; labels and annotations of its pod templates were kept"


def label_copied(kind: Kind, key: str) -> str:
    """Return the warning that a label of the pod template was replaced by that of the object."""
    return f"spec.template.{_labels([key])}: pods get the label of the {kind.kind} itself; change that one"


def queue_kept(kind: Kind, keys: Iterable[str], advice: str) -> str:
    """Return the warning that the queue label of a running object was restored."""
    return f"{_labels(keys)}: the queue of a running {kind.kind} cannot change; {advice}"


def submitter_kept(key: str) -> str:
    """Return the warning that the user's value of an annotation that only Sluice writes was replaced."""
    return f"metadata.annotations[{key}]: only Sluice writes this annotation; the value was not kept"


def gates_kept(key: str) -> str:
    """Return the warning that controllers added to the annotation of admission gates were removed."""
    return f"metadata.annotations[{key}]: controllers cannot be added after the creation; it was kept"


def _labels(keys: Iterable[str]) -> str:
    return ", ".join(f"metadata.labels[{key}]" for key in keys)


def _field(gate: list[Object]) -> str:
    """Return the path of the field that a JSON patch writes first, for example `spec.suspend`."""
    keys = [key.replace("~1", "/").replace("~0", "~") for key in gate[0]["path"].split("/")[1:]]
    return f"metadata.annotations[{keys[2]}]" if keys[:2] == ["metadata", "annotations"] else ".".join(keys)
