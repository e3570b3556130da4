"""Watch of nodes and of all pods that are not terminated, reduced to what placement by topology depends on.

It runs with the leader, from the first ResourceFlavor that names a Topology on: without one it costs nothing. Nodes
alone are watched if quota follows them, and of pods only whose they are if nothing but their use is measured.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from admission.cluster.informer import Informer
from admission.controller.state.inbox import NodesAndPodsChanged
from admission.controller.state.tracked import is_older
from admission.engine.events import NodeChanged, NodeDeleted, NodesListed, PodBound, PodEnded
from admission.kinds.placement import node_state, seen_pod
from admission.kinds.pod import occupant
from admission.model.topology import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from admission.cluster.client import Client, Object
    from admission.cluster.informer import WatchedChange
    from admission.controller.state.inbox import Inbox
    from admission.engine.events import TopologyEvent
    from admission.engine.topology.nodes import NodeState
    from admission.kinds.placement import SeenPod
    from admission.kinds.pod import Occupant
    from admission.model.errors import ClusterError
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Workload

log = logging.getLogger(__name__)

_NODES: Final = "/api/v1/nodes"
_PODS: Final = "/api/v1/pods"
_NOT_TERMINATED: Final = "status.phase!=Succeeded,status.phase!=Failed"


class NodesAndPods:
    """Nodes and pods as last seen. Changes are put into the inbox once both are listed."""

    def __init__(self, client: Client, inbox: Inbox, cluster: str, *, names_pods: bool = False) -> None:
        """`names_pods`: whether `occupants` may be asked for."""
        self._client = client
        self._inbox = inbox
        self._cluster = cluster
        self._nodes = Informer(client, _NODES)
        self._pods = self._pod_informer({})
        self._wanted = asyncio.Event()
        """Set when a flavor names a Topology."""
        self._nodes_wanted, self._pods_wanted = asyncio.Event(), asyncio.Event()
        self._occupants: dict[str, Occupant] | None = {} if names_pods else None
        self._complete = False
        self.nodes: dict[str, NodeState] = {}
        """By name."""
        self.hosts: dict[str, NodeState] = {}
        """By the label of the hostname, which assignments name: it may differ from the node's name."""
        self.pods: dict[str, SeenPod] = {}
        """By uid."""
        self.sent: dict[str, tuple[SeenPod, dict[str, str]]] = {}
        """Pods that are sent node selectors of domains, with these, by uid, until the outcome is known."""
        self._of: dict[str, dict[str, SeenPod]] = {}
        """The pods of each placed workload by their uids, by its uid, in the order in which they were seen first."""

    def follow(self, flavors: Mapping[str, ResourceFlavor]) -> None:
        """Begin to watch if a flavor of this cluster names a Topology."""
        specs = (flavor.spec for flavor in flavors.values())
        if not self._wanted.is_set() and any(spec.topology_name and spec.cluster == self._cluster for spec in specs):
            for wanted in (self._wanted, self._nodes_wanted, self._pods_wanted):
                wanted.set()

    def watch_nodes(self) -> bool:
        """Begin to watch nodes; return whether all of them are known."""
        self._nodes_wanted.set()
        return self._nodes.synced.is_set()

    @property
    def all_nodes(self) -> Mapping[str, NodeState] | None:
        """The nodes, if they are watched and all of them are known now; else None."""
        return self.nodes if self._nodes.synced.is_set() and self._nodes.failure is None else None

    def occupants(self) -> Mapping[str, Occupant] | None:
        """Begin to watch pods; return what they say about their workloads by `namespace/name`; None: not all are known.

        Only with `names_pods`.
        """
        self._pods_wanted.set()
        return self._occupants if self._pods.synced.is_set() else None

    @property
    def nodes_failure(self) -> ClusterError | None:
        """Why nodes cannot be watched at present; None: they can."""
        return self._nodes.failure

    def pods_of(self, workload: Workload) -> list[SeenPod]:
        """Return the pods of a placed workload. Those of other namespaces only claim to be."""
        namespace = f"{workload.namespace}/"
        return [pod for pod in self._of.get(workload.uid, {}).values() if pod.key.startswith(namespace)]

    async def run(self) -> None:
        """Watch until cancelled, as soon as that is wanted."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_nodes(), name="nodes")
            await self._pods_wanted.wait()
            if not self._wanted.is_set():
                names = group.create_task(self._watch(self._pods, self._names_changed), name="pods for usage")
                await self._wanted.wait()
                names.cancel()
                await asyncio.wait([names])
                self._pods = self._pod_informer(self._pods.reported())  # placement needs more of what it has seen
            log.info("watching nodes and pods, as a ResourceFlavor names a Topology")
            group.create_task(self._watch(self._pods, self._pods_changed), name="pods for topology")
            # A place is only looked for when it is known what takes room on the nodes.
            await self._pods.synced.wait()
            await self._nodes.synced.wait()
            self._complete = True
            self.report()

    def report(self) -> None:
        """Have everything that is known passed to a new engine."""
        if self._complete:
            pods = {(uid, "") for uid in self._of}
            self._inbox.put(NodesAndPodsChanged([*self._events()], pods=pods, complete=True))

    def _events(self) -> Iterator[TopologyEvent]:
        yield NodesListed(self._cluster)
        for pod in self.pods.values():
            if pod.requests is not None:
                yield PodBound(pod.uid, pod.node, pod.requests, self._cluster)
        for node in self.nodes.values():
            yield NodeChanged(node, self._cluster)

    def _pod_informer(self, reported: Mapping[str, str]) -> Informer:
        return Informer(self._client, _PODS, field_selector=_NOT_TERMINATED, reported=reported)

    async def _watch_nodes(self) -> None:
        await self._nodes_wanted.wait()
        await self._watch(self._nodes, self._nodes_changed)

    async def _watch(self, informer: Informer, changed: Callable[[list[WatchedChange]], NodesAndPodsChanged]) -> None:
        async with aclosing(informer.batches()) as batches:
            async for batch in batches:
                message = changed(batch)
                if self._complete and (message.events or message.pods):
                    self._inbox.put(message)

    def _nodes_changed(self, batch: Iterable[WatchedChange]) -> NodesAndPodsChanged:
        message = NodesAndPodsChanged([])
        for change in batch:
            if change.type == "DELETED" or change.object is None:
                if change.key in self.nodes:
                    message.events.append(NodeDeleted(change.key, self._cluster))
                    message.nodes.add(self._forget(change.key))
                continue
            node = node_state(change.object)
            if (before := self.nodes.get(node.name)) == node:  # most changes of a node are only its heartbeats
                continue
            if before is not None:
                message.nodes.add(self._forget(node.name))
            self.nodes[node.name] = self.hosts[node.hostname] = node
            message.events.append(NodeChanged(node, self._cluster))
            message.nodes.add(node.hostname)
        return message

    def hostname(self, pod: SeenPod) -> str:
        """Return the hostname of the node that a pod is on, sent to, or perhaps sent to; "" if there is none."""
        if pod.node:
            return self.nodes[pod.node].hostname if pod.node in self.nodes else pod.node
        if pod.placed is not None and not pod.placed.gated:
            return pod.placed.selector.get(HOSTNAME, "")
        return self.sent[pod.uid][1].get(HOSTNAME, "") if pod.uid in self.sent else ""

    def _forget(self, name: str) -> str:
        """Forget a node; return its hostname."""
        hostname = self.nodes.pop(name).hostname
        if (known := self.hosts.get(hostname)) is not None and known.name == name:
            del self.hosts[hostname]
        return hostname

    def _names_changed(self, batch: Iterable[WatchedChange]) -> NodesAndPodsChanged:
        if self._occupants is not None:
            for change in batch:
                seen = None if change.object is None or change.type == "DELETED" else occupant(change.object)
                if seen is None:
                    self._occupants.pop(change.key, None)
                else:
                    self._occupants[change.key] = seen
        return NodesAndPodsChanged([])

    def _pods_changed(self, batch: Iterable[WatchedChange]) -> NodesAndPodsChanged:
        message = self._names_changed(batch)
        for change in batch:
            obj = None if change.type == "DELETED" else change.object
            known = self.pods.get(change.uid)
            if obj is not None and known is not None and known.version == obj["metadata"]["resourceVersion"]:
                continue  # the response to a request has shown it
            self._note(change.uid, None if obj is None else seen_pod(obj), message)
        return message

    def settle(self, pod: SeenPod, obj: Object | None) -> None:
        """Note a pod that was sent to a domain as it is now; None: it does not exist any more.

        If its end has been seen meanwhile, it stays forgotten: no watch would report that again.
        """
        self.sent.pop(pod.uid, None)
        message = NodesAndPodsChanged([], pods={(pod.workload, "")})
        if pod.uid in self.pods:
            exists = obj is not None and obj["metadata"]["uid"] == pod.uid
            self._note(pod.uid, seen_pod(obj) if obj is not None and exists else None, message)
        self._inbox.put(message)

    def _note(self, uid: str, pod: SeenPod | None, message: NodesAndPodsChanged) -> None:
        known = self.pods.get(uid)
        if known is not None and pod is not None and is_older(pod.version, known.version):
            return
        if known is not None and pod is not None and known._replace(version=pod.version) == pod:
            self.pods[uid] = pod  # nothing that counts has changed
            if pod.workload:
                self._of[pod.workload][uid] = pod
            return
        if pod is None:
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = pod
        if known is not None and known.workload and (pod is None or pod.workload != known.workload):
            others = self._of[known.workload]
            del others[uid]
            if not others:
                del self._of[known.workload]
        if pod is not None and pod.workload:
            self._of.setdefault(pod.workload, {})[uid] = pod
        for each in (known, pod):
            if each is not None and each.workload:
                message.pods.add((each.workload, self.hostname(each)))
        taken = None if pod is None or pod.requests is None else (pod.node, pod.requests)
        took = None if known is None or known.requests is None else (known.node, known.requests)
        if taken != took:
            ended = PodEnded(uid, self._cluster)
            message.events.append(ended if taken is None else PodBound(uid, *taken, self._cluster))
