"""Names of workloads, as Kueue forms them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from admission.model.workload import Workload

_HASH_LENGTH = 5
_SHORT_KINDS: Final = {
    "cj": "cronjob",
    "deploy": "deployment",
    "lws": "leaderworkerset",
    "po": "pod",
    "rs": "replicaset",
    "sts": "statefulset",
    "wl": "workload",
}
"""Short names of kinds, as kubectl accepts them."""


def workload_name(workload: Workload) -> str:
    """Return the name of a workload, as Kueue forms it: `KIND-NAME-HASH`, such as `job-train-1a2b3`.

    The hash is of the uid: a Job that is deleted and created again under the same name is another workload.
    """
    digest = hashlib.blake2b(workload.uid.encode(), digest_size=8).hexdigest()
    return f"{workload.kind.lower()}-{workload.name}-{digest[:_HASH_LENGTH]}"


def object_name(name: str) -> str:
    """Return the Kubernetes object's name within a `workload_name`; empty if that has another form."""
    _, _, rest = name.partition("-")
    return rest[: -_HASH_LENGTH - 1]


def plain_kind(text: str) -> str:
    """Return a kind in lower case, from what kubectl accepts and prints: `Pod`, `pods`, `deploy`, `job.batch`.

    It is empty for `workload.sluice.dev`, as `-o name` prints it: a workload's object may be of any kind.
    """
    kind = text.partition(".")[0].lower()
    known = _SHORT_KINDS.get(kind) or _SHORT_KINDS.get(kind.removesuffix("s")) or kind.removesuffix("s")
    return "" if known == "workload" else known
