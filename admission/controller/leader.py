"""In-memory state and services of the leader for one cluster, recreated when the state is loaded from the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from admission.controller.routing import Router
from admission.controller.state.isolation import Isolation
from admission.controller.state.leader_state import LeaderState
from admission.controller.state.tracked import StoredObject
from admission.controller.workloads.children import Children
from admission.controller.workloads.dispatching import Dispatching
from admission.controller.workloads.environment import Environment
from admission.controller.workloads.failed_nodes import FailedNodes
from admission.controller.workloads.hosted import Hosted
from admission.controller.workloads.pod_groups import PodGroups
from admission.controller.workloads.reconciler import Reconciler
from admission.controller.workloads.requests import Requests
from admission.controller.workloads.ungating import Ungating
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from admission.cluster.client import Client
    from admission.cluster.events import EventRecorder
    from admission.controller.intake.watches import ClusterWatches
    from admission.controller.state.faults import Faults
    from admission.controller.state.inbox import Inbox, Message
    from admission.controller.state.leader_state import Batch, WorkloadRegistry
    from admission.controller.state.policy import ControllerPolicy
    from admission.controller.workloads.dispatching import DispatchTarget
    from admission.controller.workloads.nodes_and_pods import NodesAndPods
    from admission.controller.workloads.pod_waiter import PodWaiter
    from admission.controller.workloads.sender import Sender
    from admission.engine import Engine
    from admission.kinds.registry import Kinds


class Shared(NamedTuple):
    """What the states of all clusters of a leader have in common: they are decided about and committed together."""

    engine: Engine
    batch: Batch
    namespace_labels: Callable[[str], Mapping[str, str] | None]
    """Returns the labels of a namespace, which has one meaning in all clusters; None: there is no such namespace."""
    tell_hub: Callable[[Message], None]
    """Puts a message into the inbox of `local`."""
    hub_workloads: Callable[[], WorkloadRegistry]
    """Returns the workloads whose objects are in `local`, some of which run elsewhere."""
    targets: Callable[[], Mapping[str, DispatchTarget]]
    """Returns the clusters other than `local`, by name: those that workloads are dispatched to."""
    is_elsewhere: Callable[[str, str], bool] | None
    """Whether a workload (uid) is known in another cluster than that of this name; None: there is only one cluster."""


class Leader:
    """Empty state of a leader for one cluster, and the services that work on it. The arguments outlive it."""

    def __init__(
        self,
        *,
        kinds: Kinds,
        client: Client,
        watches: ClusterWatches,
        policy: ControllerPolicy,
        inbox: Inbox,
        pod_waiter: PodWaiter,
        nodes_and_pods: NodesAndPods,
        sender: Sender,
        events: EventRecorder,
        faults: Faults,
        shared: Shared,
        clock: Callable[[], float],
    ) -> None:
        self.inbox = inbox
        self.kinds = kinds
        self.context = watches.context
        self.state = LeaderState(shared.engine, batch=shared.batch, clock=clock)
        self.isolation = Isolation(
            kinds=kinds,
            state=self.state,
            faults=faults,
            cluster=watches.context.cluster,
            is_elsewhere=shared.is_elsewhere,
        )
        environment = Environment(kinds, watches.context, policy.pods_ready, unlabelled=policy.unlabelled)
        self.dispatching: Dispatching | None = None
        """The workloads that run as copies elsewhere; None: this cluster is not the hub."""
        if watches.context.cluster == LOCAL:
            self.dispatching = Dispatching(
                self.state, sender, inbox, client, targets=shared.targets, exists=watches.may_have
            )
        self.reconciler = Reconciler(self.state, environment, pod_waiter, self.isolation, self.dispatching)
        self.groups = PodGroups(reconciler=self.reconciler, inbox=inbox, listed=watches.objects_synced.is_set)
        if self.dispatching is not None:
            self.dispatching.begin(self.reconciler, self.groups)
        self.children = Children(
            reconciler=self.reconciler, groups=self.groups, sender=sender, events=events, inbox=inbox
        )
        self.requests = Requests(
            reconciler=self.reconciler,
            children=self.children,
            groups=self.groups,
            client=client,
            sender=sender,
            events=events,
            inbox=inbox,
        )
        self.hosted = Hosted(self.reconciler, shared.hub_workloads, shared.tell_hub)
        self.ungating = Ungating(self.hosted, nodes_and_pods, client, sender, inbox.wake)
        self.failed_nodes = FailedNodes(self.hosted, nodes_and_pods)
        self.router = Router(
            self.reconciler,
            self.children,
            self.groups,
            self.requests,
            self.ungating,
            self.failed_nodes,
            sender,
            faults,
            shared.namespace_labels,
            None if self.dispatching is not None else shared.tell_hub,
        )

    def see_pods(self, uids: Collection[str]) -> None:
        """Look at the pods of workloads that are in this cluster: what these hold has changed."""
        self.ungating.changed(uids)
        self.failed_nodes.placed_again(uids)

    def objects(self) -> dict[str, StoredObject]:
        """Return all objects that were compared with stored workloads, by uid."""
        seen = {
            tracked.uid: StoredObject(tracked.seen.kind, tracked.kept)
            for tracked in self.state.registry
            if tracked.seen is not None and isinstance(tracked.kept, bytes)
        }
        return self.children.objects() | self.groups.objects() | seen
