"""Names of workloads, as Kueue forms them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from admission.model.workload import Workload

_HASH_LENGTH = 5


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
