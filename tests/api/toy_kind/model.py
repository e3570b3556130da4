"""Model of a kind of queue object for tests only, as it would be added to `admission/model/queues.py`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from admission.model.base import Model, Name
from admission.model.kind_names import KindNames
from admission.model.queues import _Named
from admission.model.references import ReferenceField

NAMES = KindNames("Allowance", "allowances", ("alw",))
"""As they would be added to `admission/model/kind_names.py`."""


class AllowanceSpec(Model):
    """ClusterQueue and amount of an Allowance."""

    cluster_queue: Name
    """The ClusterQueue whose workloads are limited."""
    gpu_hours: Annotated[int, Field(ge=0)]
    """GPU hours that these workloads may use in a month."""


class Allowance(_Named):
    """Monthly limit of GPU hours for the workloads of a ClusterQueue."""

    kind, plural, short_names, namespaced = NAMES
    references = (ReferenceField("ClusterQueue", "spec.clusterQueue"),)

    spec: AllowanceSpec
    """ClusterQueue and amount."""
