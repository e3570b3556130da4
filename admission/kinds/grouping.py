"""A pod's group, role and number of pods, from the labels and annotations of Kueue, Sluice and controllers."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission.kinds import templates
from admission.kinds.base import KUEUE
from admission.kinds.common import NOTHING, first
from admission.kinds.declared_pods import POD_SET, POD_SETS, declared_pod_sets, declares, pod_set_named
from admission.kinds.foreign_groups import declared, declared_faults
from admission.kinds.gates import SchedulingGate
from admission.model import names
from admission.model.errors import Misconfigured
from admission.model.pod_set_names import is_computed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.kinds.base import Conventions, Object
    from admission.kinds.foreign_groups import Declared

GATE: Final = SchedulingGate("sluice.dev/admission")
GROUP_NAME: Final = ("sluice.dev/pod-group-name", f"{KUEUE}pod-group-name")
"""Labels that name a pod's group."""
TOTAL: Final = ("sluice.dev/pod-group-total-count", f"{KUEUE}pod-group-total-count")
"""Annotations with the number of pods of the group."""
FAST: Final = ("sluice.dev/pod-group-fast-admission", f"{KUEUE}pod-group-fast-admission")
"""Annotations that let a group start before all of its pods exist, if "true"."""
RETRIABLE: Final = ("sluice.dev/retriable-in-group", f"{KUEUE}retriable-in-group")
"""Annotations that say that failed pods of the group are not replaced, if "false"."""
ROLE: Final = "sluice.dev/pod-group-role"
"""Annotation that a start writes on a pod: its role, which cannot be computed once its node selector has changed."""
STARTED_WITH: Final = "sluice.dev/pod-group-uid"
"""Annotation that a start writes on a pod: the uid of its group, as another group may have the same name later."""
VOLCANO_JOB: Final = "volcano.sh/job-name"
"""Label of the pods of a Volcano Job: its name, which is that of its one group."""
_OUT_OF_SYNC: Final = "volcano.sh/controller-out-of-sync"
_STATEFUL_SET: Final = "statefulset.kubernetes.io/pod-name"


def group_of(pod: Object, conventions: Conventions) -> str:
    """Return the name of the group that a pod is in; empty: it is queued by itself."""
    if own := _own_group_of(pod, conventions):
        return own
    found = declared(pod, conventions.group_labels)
    return "" if found is None else found.name


def foreign_group_of(pod: Object, conventions: Conventions) -> Declared | None:
    """Return what a pod declares about a group of another system; None: nothing, or `_own_group_of` applies."""
    return None if _own_group_of(pod, conventions) else declared(pod, conventions.group_labels)


def _own_group_of(pod: Object, conventions: Conventions) -> str:
    """Return the group by Sluice's and Kueue's labels, or by those of the pod's controller.

    In the templates of grouped kinds (`grouped`) the webhook sets the total count only, as the object's name may not be
    known yet. The group of their pods is named by their controller's labels.
    """
    labels = pod["metadata"].get("labels") or NOTHING
    named = first(labels, GROUP_NAME)
    if named or not total_of(pod):
        return named
    for keys in conventions.named_by:
        if all(map(labels.get, keys)):
            return "-".join(str(labels[key]) for key in keys)
    # Last, as pods of a LeaderWorkerSet have this label as well.
    return str(labels.get(_STATEFUL_SET) or "").rpartition("-")[0]


def before_deletion(pod: Object) -> Object | None:
    """Return the merge patch by which a pod's controller does not count its deletion as a failure; None: none needed.

    Without it Volcano restarts the whole Job if its policies say so for evicted pods, which counts as a retry.
    """
    metadata = pod["metadata"]
    is_volcanos = VOLCANO_JOB in (metadata.get("labels") or NOTHING)
    if not is_volcanos or _OUT_OF_SYNC in (metadata.get("annotations") or NOTHING):
        return None
    return {"metadata": {"uid": metadata["uid"], "annotations": {_OUT_OF_SYNC: "true"}}}


def is_being_deleted(pod: Object) -> bool:
    """Whether a pod is being deleted, or has the patch of `before_deletion`, after which its controller deletes it."""
    metadata = pod["metadata"]
    return "deletionTimestamp" in metadata or _OUT_OF_SYNC in (metadata.get("annotations") or NOTHING)


def total_of(pod: Object) -> int:
    """Return the number of pods of a pod's group by its annotation; 0: missing or invalid."""
    text = first(pod["metadata"].get("annotations"), TOTAL)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0


def group_faults(pod: Object, conventions: Conventions) -> list[tuple[str, str]]:
    """Return (field path, message) of each error in what a pod declares about its group."""
    labels = pod["metadata"].get("labels") or NOTHING
    faults = [
        (f"metadata.labels[{label}]", 'is no name: use lower-case letters, digits, "-" and "."')
        for label in GROUP_NAME
        if label in labels and not names.is_dns_subdomain(labels[label])
    ]
    own = _own_group_of(pod, conventions)
    if declares(pod):
        faults += _declaration_faults(pod, grouped=bool(own))
    elif own and not total_of(pod) and not pod_set_named(pod):
        message = "must say how many pods the group has, from 1 to 99999: it waits for all of them"
        faults.append((f"metadata.annotations[{TOTAL[0]}]", message))
    return faults if own else [*faults, *declared_faults(pod, conventions.group_labels)]


def _declaration_faults(pod: Object, *, grouped: bool) -> list[tuple[str, str]]:
    """Return the errors in a pod's declaration of pod sets."""
    try:
        known = [each.name for each in declared_pod_sets(pod)]
    except Misconfigured as error:
        path, _, message = str(error).partition(": ")
        return [(path, message)]
    if not grouped:
        return [(f"metadata.annotations[{POD_SETS}]", f"is for pods of a group: name it in the label {GROUP_NAME[0]}")]
    if pod_set_named(pod) not in known:
        return [(f"metadata.labels[{POD_SET}]", f"must name the pod set that the pod is in: {', '.join(known)}")]
    return []


def role_of(pod: Object, leaf: str = "") -> str:
    """Return the role of a pod: a hash of its requests and a hash of where it may run, `HASH32-HASH6`.

    The first hash has 128 bits: a user cannot construct two pods of different size with the same one, so that one
    would run on the other's quota. What a start injects changes the second hash, so a started pod has its role in an
    annotation, which is trusted for the second hash only. `leaf`: the pod's PodGroup, if its group consists of several.
    """
    part = templates.digest_parts(pod)["spec"]
    placement = {field: part.pop(field) for field in ("nodeSelector", "tolerations", "affinity") if field in part}
    if leaf:
        placement["leaf"] = leaf
    requests_hash, annotated = _hash(part, 16), (pod["metadata"].get("annotations") or NOTHING).get(ROLE, "")
    if not GATE.is_closed(pod) and is_computed(annotated) and annotated.startswith(f"{requests_hash}-"):
        return str(annotated)
    return f"{requests_hash}-{_hash(placement, 3)}"


def _hash(document: Mapping[str, Any], size: int) -> str:
    return sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).digest()[:size].hex()
