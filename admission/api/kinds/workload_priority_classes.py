"""API descriptor of WorkloadPriorityClasses."""

from __future__ import annotations

from typing import Final

from admission.api.kinds.columns import Column, at
from admission.api.kinds.descriptor import ObjectKind
from admission.model.queues import WorkloadPriorityClass

WORKLOAD_PRIORITY_CLASS: Final = ObjectKind(
    WorkloadPriorityClass, columns=(Column("Value", at("value"), "Priority of its workloads", "integer"),)
)
