"""The model of a kind of queue object that only the tests have: what would be added to `admission/model/queues.py`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from admission.model.base import Model, Name
from admission.model.queues import _Named
from admission.model.references import Reference


class BudgetSpec(Model):
    """For whom, and how much."""

    cluster_queue: Name
    """The ClusterQueue whose workloads it is for."""
    gpu_hours: Annotated[int, Field(ge=0)]
    """What they may use in a month."""


class Budget(_Named):
    """What the workloads of a ClusterQueue may use."""

    kind = "Budget"
    plural = "budgets"
    short_names = ("bud",)
    references = (Reference("ClusterQueue", "spec.clusterQueue"),)

    spec: BudgetSpec
    """For whom, and how much."""
