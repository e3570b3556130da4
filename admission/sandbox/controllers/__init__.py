"""Simulated controllers: batch and apps, garbage collection, namespaces, scheduler, and kubelets of simulated nodes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from admission.sandbox.background import background
from admission.sandbox.controllers.claims import ClaimController
from admission.sandbox.controllers.collector import Collector
from admission.sandbox.controllers.cronjobs import CronJobController
from admission.sandbox.controllers.deployments import DeploymentController
from admission.sandbox.controllers.jobs import JobController
from admission.sandbox.controllers.kubelet import Kubelet
from admission.sandbox.controllers.namespaces import NamespaceController
from admission.sandbox.controllers.podlife import EXIT_CODE, RUN_SECONDS, START, STOP_SECONDS
from admission.sandbox.controllers.replicasets import ReplicaSetController
from admission.sandbox.controllers.scheduler import PodScheduler
from admission.sandbox.controllers.statefulsets import StatefulSetController
from admission.sandbox.controllers.tokens import TokenController

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from admission.sandbox.clock import Clock
    from admission.sandbox.controllers.base import SimulatedController
    from admission.sandbox.controllers.tokens import IssueToken
    from admission.sandbox.local import LocalClient

__all__ = ["EXIT_CODE", "RUN_SECONDS", "START", "STOP_SECONDS", "controllers"]

_MANAGER = "system:kube-controller-manager"
_SCHEDULER = "system:kube-scheduler"
_KUBELET = "system:node:sandbox"


@asynccontextmanager
async def controllers(
    local: Callable[[str], LocalClient],
    clock: Clock,
    *,
    before_1_36: bool = False,
    issue_token: IssueToken | None = None,
) -> AsyncIterator[None]:
    """Run all controllers in the background during the block; `local` returns the API client of a user.

    `issue_token`: for the Secrets of service accounts; None: they stay empty.

    An exception for one object is logged and retried. When a controller ends, the task that runs the block is
    cancelled; at exit its exception is raised in an ExceptionGroup.
    """
    manager = local(_MANAGER)
    running: tuple[SimulatedController[Any], ...] = (
        JobController(manager, clock, keeps_start_time=before_1_36),
        CronJobController(manager, clock),
        DeploymentController(manager, clock),
        ReplicaSetController(manager, clock),
        StatefulSetController(manager, clock),
        Collector(manager, clock),
        NamespaceController(manager, clock),
        PodScheduler(local(_SCHEDULER), clock),
        Kubelet(local(_KUBELET), clock),
    )
    if "resourceclaims" in manager.plurals():
        running += (ClaimController(manager, clock),)
    if issue_token is not None:
        running += (TokenController(manager, clock, issue_token),)
    async with background(**{type(each).__name__: each.run() for each in running}):
        yield
