"""Pods of MCAD's AppWrappers: the observed ones, and a list of them where something depends on their absence.

Pods may outlive the Job that created them: if it is deleted with orphaned pods, or while its pods take long to end.
Their quota is in use until then.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from admission.cluster.errors import Conflict, NotFound
from admission.cluster.informer import Informer
from admission.cluster.writer import Deletion
from admission.kinds.children import controller_of
from admission.kinds.declared import WORKLOAD_UID
from admission.kinds.mcad import APP_WRAPPER
from admission.kinds.pod_group import FINISHED_PHASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from admission.cluster.client import Client, Object
    from admission.cluster.writer import Writer
    from admission.kinds.mcad import WrappedItem


class AppWrapperPods:
    """Observes the pods of AppWrappers; lists and deletes those of one AppWrapper."""

    def __init__(self, client: Client, writer: Writer, touch: Callable[[str], None]) -> None:
        """`touch` is called with the uid of an AppWrapper when one of its pods has changed."""
        self._client = client
        self._writer = writer
        self._touch = touch
        self._informer = Informer(client, "/api/v1/pods", label_selector=APP_WRAPPER)
        self.synced = self._informer.synced
        self._pods: dict[str, dict[str, Object]] = {}
        """Uid of an AppWrapper -> its pods, by uid."""
        self._owner_of_pod: dict[str, str] = {}
        """Uid of a pod -> uid of its AppWrapper."""

    async def follow(self) -> None:
        """Observe pods until cancelled."""
        async for batch in self._informer.batches():
            for change in batch:
                obj = change.object
                owner = self._owner_of_pod.pop(change.uid, "")
                self._pods.get(owner, {}).pop(change.uid, None)
                if change.type != "DELETED" and obj is not None:
                    owner = (obj["metadata"].get("labels") or {}).get(WORKLOAD_UID, "")
                    self._owner_of_pod[change.uid] = owner
                    self._pods.setdefault(owner, {})[change.uid] = obj
                self._touch(owner)

    def observed(self, uid: str) -> list[Object]:
        """Return the observed pods of an AppWrapper."""
        return list(self._pods.get(uid, {}).values())

    def forget(self, uid: str) -> None:
        """Free the memory of an AppWrapper without pods; no-op if it has any."""
        if not self._pods.get(uid):
            self._pods.pop(uid, None)

    async def list_unfinished(self, obj: Object) -> list[Object]:
        """Return the unfinished pods of an AppWrapper, as the API server has them now. Raises ClusterError.

        The observed pods may be out of date, and lack pods from which a user has removed the label APP_WRAPPER.
        """
        path = f"/api/v1/namespaces/{obj['metadata']['namespace']}/pods"
        params = {"labelSelector": f"{WORKLOAD_UID}={obj['metadata']['uid']}"}
        pages = self._client.list_pages(path, params=params)
        return [pod async for page in pages for pod in page["items"] if is_unfinished(pod)]

    async def delete(self, pods: Iterable[Object]) -> None:
        """Delete these pods, except those that are being deleted. Raises ClusterError."""
        for pod in pods:
            metadata = pod["metadata"]
            if "deletionTimestamp" in metadata:
                continue
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            with suppress(NotFound, Conflict):  # it is gone, perhaps replaced by another one of its name
                await self._writer.request(Deletion(path, metadata["uid"]))


def is_unfinished(pod: Object) -> bool:
    """Whether a pod may still use its requests; also while it is terminating."""
    return (pod.get("status") or {}).get("phase") not in FINISHED_PHASES


def leftover(pods: Iterable[Object], wrapped: Iterable[WrappedItem], jobs: Iterable[Object]) -> Sequence[Object]:
    """Return the unfinished ones of an AppWrapper's `pods` that no existing item accounts for.

    An item accounts for the pod of its name, or for the pods whose controller it is. `jobs`: those that exist. The
    label with the name of the pod set is not compared, because users may change it.
    """
    names = {item.object["metadata"]["name"] for item in wrapped if item.object["kind"] == "Pod"}
    owners = {job["metadata"]["uid"] for job in jobs}
    return [
        pod
        for pod in pods
        if is_unfinished(pod)
        and pod["metadata"]["name"] not in names
        and (controller_of(pod) or {}).get("uid") not in owners
    ]
