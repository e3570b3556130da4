"""An observed Job, for unit tests of the controller's decisions."""

from __future__ import annotations

from admission.kinds import all_kinds
from admission.kinds.base import Observed

SUSPENDED = Observed(
    kind=all_kinds().get("batch", "Job"),
    uid="u",
    namespace="team-a",
    name="one",
    resource_version="1",
    generation=1,
    created=0.0,
    queue="lq",
    priority_class="",
    pod_priority_class="",
    user="",
    on_hold=False,
    suspended=True,
    active=False,
    started=False,
    counts=(),
    deleting=False,
    finished=None,
)
