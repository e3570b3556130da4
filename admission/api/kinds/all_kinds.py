"""Registry of the API descriptors of all kinds of queue objects."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from admission.api.kinds.admission_checks import ADMISSION_CHECK
from admission.api.kinds.budgets import BUDGET
from admission.api.kinds.cluster_queues import CLUSTER_QUEUE
from admission.api.kinds.clusters import CLUSTER
from admission.api.kinds.cohorts import COHORT
from admission.api.kinds.drains import DRAIN
from admission.api.kinds.local_queues import LOCAL_QUEUE
from admission.api.kinds.provisioning_request_configs import PROVISIONING_REQUEST_CONFIG
from admission.api.kinds.reservations import RESERVATION
from admission.api.kinds.resource_flavors import RESOURCE_FLAVOR
from admission.api.kinds.subscriptions import SUBSCRIPTION
from admission.api.kinds.topologies import TOPOLOGY
from admission.api.kinds.user_limits import USER_LIMIT
from admission.api.kinds.workload_priority_classes import WORKLOAD_PRIORITY_CLASS

KINDS: Final = MappingProxyType(
    {
        kind.model.kind: kind
        for kind in (
            CLUSTER_QUEUE,
            COHORT,
            LOCAL_QUEUE,
            RESOURCE_FLAVOR,
            TOPOLOGY,
            WORKLOAD_PRIORITY_CLASS,
            ADMISSION_CHECK,
            PROVISIONING_REQUEST_CONFIG,
            BUDGET,
            RESERVATION,
            DRAIN,
            USER_LIMIT,
            SUBSCRIPTION,
            CLUSTER,
        )
    }
)
"""Descriptor by kind, for each of `admission.model.queues.QUEUE_OBJECTS`."""
