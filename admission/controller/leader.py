"""All that a leader works with, made anew whenever the state is loaded from the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.controller.decisions.scheduler import Scheduler
from admission.controller.dispatch import Dispatcher
from admission.controller.state.isolation import Isolation
from admission.controller.state.workload_state import Desk
from admission.controller.workloads.acting import Acting
from admission.controller.workloads.admitted import Upkeep
from admission.controller.workloads.children import Children
from admission.controller.workloads.observing import Observing
from admission.engine import Engine

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from admission.cluster.client import Client
    from admission.cluster.events import EventRecorder
    from admission.cluster.writer import Writer
    from admission.controller.state.context import Context
    from admission.controller.state.faults import Faults
    from admission.controller.state.inbox import Inbox
    from admission.controller.state.policy import Policy
    from admission.controller.workloads.pod_waiter import PodWaiter
    from admission.kinds.base import Kind, Object
    from admission.kinds.registry import Kinds


class Leader:
    """An empty desk, and those who work at it. What is given outlasts it."""

    def __init__(
        self,
        *,
        kinds: Kinds,
        client: Client,
        context: Context,
        policy: Policy,
        inbox: Inbox,
        pod_waiter: PodWaiter,
        writer: Writer,
        events: EventRecorder,
        faults: Faults,
        reads: set[asyncio.Task[None]],
        clock: Callable[[], float],
    ) -> None:
        self.desk = Desk(Engine(policy.engine), clock=clock)
        self.isolation = Isolation(kinds=kinds, desk=self.desk, faults=faults, clock=clock)
        self.upkeep = Upkeep(
            context=context,
            desk=self.desk,
            pods_ready=policy.pods_ready,
            clock=clock,
            isolated=self.isolation.of,
        )
        self.children = Children(
            kinds=kinds,
            client=client,
            writer=writer,
            events=events,
            inbox=inbox,
            context=context,
            desk=self.desk,
            reads=reads,
        )
        self.observing = Observing(kinds, context, self.desk, pod_waiter, self.upkeep, self.children)
        self.acting = Acting(
            kinds=kinds,
            client=client,
            writer=writer,
            events=events,
            inbox=inbox,
            context=context,
            desk=self.desk,
            observing=self.observing,
            isolation=self.isolation,
            reads=reads,
        )
        self.dispatcher = Dispatcher(
            context=context,
            desk=self.desk,
            observing=self.observing,
            isolation=self.isolation,
            faults=faults,
            acting=self.acting,
            upkeep=self.upkeep,
            children=self.children,
        )

        self.scheduler = Scheduler(
            desk=self.desk, acting=self.acting, upkeep=self.upkeep, isolation=self.isolation, clock=clock
        )

    def see(self, kind: Kind, obj: Object) -> None:
        """Take in an object of a kind as it is now, on its own."""
        self.isolation.see(kind, obj, self.observing.see)
