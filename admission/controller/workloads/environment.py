"""Inputs of workload transitions other than the workload itself: kinds, namespace context, settings. Read only."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.kinds.rules import EVERYTHING_IS_LABELLED, Unlabelled, first_match
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.controller.state.context import Context
    from admission.controller.state.policy import WaitForPodsReady
    from admission.kinds.base import Kind, Object
    from admission.kinds.registry import Kinds


@dataclass(frozen=True, slots=True)
class Environment:
    """Inputs of `transition` that are the same for all workloads."""

    kinds: Kinds
    context: Context
    pods_ready: WaitForPodsReady | None
    """The setting `waitForPodsReady`; None: it is off."""
    chance: Callable[[], float] = random.random
    """Random number from 0 to 1: the jitter of requeue backoffs."""
    unlabelled: Unlabelled = EVERYTHING_IS_LABELLED
    """Managed namespaces and queue rules, by which objects without a queue label are queued."""

    def queues_pods_of(self, kind: Kind, owner: Object, pod_kind: Kind) -> bool:
        """Return whether all pods that an object's controller creates are queued, too.

        If some are not, Sluice does not watch them and cannot count them.
        """
        namespace = owner["metadata"]["namespace"]
        if self.unlabelled.has_all_of(self.context.namespace_labels(namespace)):
            return True
        try:
            templates = kind.templates(owner)
        except Misconfigured:
            return False
        for template in templates:
            pod = {"metadata": {**(template.get("metadata") or {}), "namespace": namespace}, "spec": {}}
            if not pod_kind.queue_name(pod) and first_match(self.unlabelled.rules, pod_kind, namespace, pod) is None:
                return False
        return True
