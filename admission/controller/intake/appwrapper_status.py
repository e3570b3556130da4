"""Status of a dispatched AppWrapper of MCAD, from its pods and the outcomes of its items."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from admission.cluster.client import Object
    from admission.kinds.mcad import WrappedItem

COMPLETED: Final = "Completed"
FAILED: Final = "Failed"
STATUS_FIELDS: Final = (
    "state",
    "queuejobstate",
    "canrun",
    "isdispatched",
    "running",
    "pending",
    "failed",
    "Succeeded",
    "message",
)
"""The fields of the status that Sluice writes."""


def dispatched_status(obj: Object, wrapped: list[WrappedItem], ends: list[str], pods: list[Object]) -> Object:
    """Return the status of a dispatched AppWrapper, in MCAD's fields and values. `ends`: outcomes of items with pods.

    TorchX does not know the state `Completed`. As in MCAD, it is only written if an item has a `completionstatus`.
    """
    expected = sum(item.pods for item in wrapped)
    phases = Counter((pod.get("status") or {}).get("phase") for pod in pods)
    counts = {"running": phases["Running"], "failed": phases["Failed"], "Succeeded": phases["Succeeded"]}
    counts["pending"] = max(expected - sum(counts.values()), phases["Pending"])
    state, queued = "Running", "Dispatched"
    if counts["running"] + counts["Succeeded"] >= _min_available(obj, expected):
        queued = "Running"
    with_pods = sum(1 for item in wrapped if item.pods)
    if len(ends) == with_pods and not counts["running"]:
        counts["pending"] = 0
        queued = FAILED if FAILED in ends else COMPLETED
        has_condition = any(each.get("completionstatus") for each in obj["spec"]["resources"]["GenericItems"])
        state = FAILED if queued == FAILED else COMPLETED if has_condition else state
    elif not counts["running"]:
        counts["pending"] = max(counts["pending"], 1)  # its quota is in use, though each pod it had may have failed
    return {"state": state, "queuejobstate": queued, "canrun": True, "isdispatched": True, **counts}


def _min_available(obj: Object, expected: int) -> int:
    """Return the number of pods that have to run for the AppWrapper to be running; by default all `expected` ones."""
    number: Any = (obj["spec"].get("schedulingSpec") or {}).get("minAvailable")
    return number if isinstance(number, int) and 0 < number <= expected else expected
