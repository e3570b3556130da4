"""Further clusters of `sluice serve`: their credentials and gates, and the check of a Cluster that is written."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self

from admission.api.resources.clusters_in_reach import Reached
from admission.cli.serve.adoption import survey
from admission.cli.serve.webhook_service import excluded_namespaces, gate_scope
from admission.cluster.claim import cluster_identities
from admission.cluster.client import Client
from admission.cluster.credentials import load_kubeconfig
from admission.cluster.errors import BadKubeconfig, RefusedByCluster
from admission.cluster.identity import whoami
from admission.controller.clusters import Connection
from admission.controller.intake.served import served_versions
from admission.kinds.registry import verbs
from admission.model.errors import ClusterError
from webhooks.certificate_sharing import refresh_shared
from webhooks.certificates import Certificates
from webhooks.gate_reconciler import GateReconciler
from webhooks.registration import Registration, ServiceReference

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from admission.cli.configuration.settings import Settings
    from admission.cluster.claim import Claim
    from admission.cluster.credential_loaders import Configuration
    from admission.controller.clusters import Join
    from admission.kinds import Kinds
    from admission.model.clusters import ClusterSpec, ClusterWebhook
    from admission.model.queues import Cluster
    from admission.store.store import Store

log = logging.getLogger(__name__)

CERTIFICATES: Final = "sluice-webhook-certificates"
"""Secret beside the Service of a gate with its certificates, unless they are not Sluice's."""
CHECK_SECONDS: Final = 10.0
"""Seconds that the check of a written Cluster may take: its author waits for the answer."""
KEPT_SECONDS: Final = 60.0
"""Seconds for which a connection for requests of users is kept after its last use."""
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_AT_ONCE: Final = 8
"""Reviews that are under way at the same time."""


class _Right(NamedTuple):
    """A right that Sluice needs in a cluster."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    namespace: str = ""
    name: str = ""


_RIGHTS: Final = (
    _Right("", "namespaces", ("list", "watch")),
    _Right("", "namespaces", ("get",), name="kube-system"),
    _Right("", "limitranges", ("list", "watch")),
    _Right("node.k8s.io", "runtimeclasses", ("list", "watch")),
    _Right("scheduling.k8s.io", "priorityclasses", ("list", "watch")),
    _Right("", "pods", ("list",)),
    _Right("events.k8s.io", "events", ("create",)),
    _Right("authorization.k8s.io", "subjectaccessreviews", ("create",)),
    _Right("coordination.k8s.io", "leases", ("create",), namespace="kube-system"),
    _Right("coordination.k8s.io", "leases", ("get", "update"), namespace="kube-system", name="sluice-database"),
)
"""What deploy/rbac/sluice.yaml grants, without what registers the gate."""


class Clusters:
    """The clusters that can join this process, by the files in the directory of credentials."""

    def __init__(self, settings: Settings, kinds: Callable[[], Kinds]) -> None:
        """`kinds`: returns the enabled kinds, anew for each cluster, as each serves others."""
        self._settings = settings
        self.kinds = kinds

    def join(self, store: Store, claim: Claim, leads: Callable[[], bool]) -> Join:
        """Return the function that connects clusters, each claimed like `claim` for the database in `store`."""

        def join(cluster: Cluster) -> Connection:
            client, kinds = self.client(cluster), self.kinds()
            own = claim.elsewhere(client)
            gate = partial(self._gate, cluster, client, kinds, lambda: leads() and own.holds())

            async def would_stop() -> str:
                found = await survey(store, client, self.kinds(), cluster.name)
                return str(found) if found.stopped and not found.known else ""

            return Connection(client, kinds, own, gate, would_stop, lambda: self.version(cluster))

        return join

    def client(self, cluster: Cluster) -> Client:
        """Return a client that is not connected yet; faults in the credentials are raised when it connects."""
        directory, file = self._settings.cluster_credentials, cluster.spec.kubeconfig
        if directory is None or file is None:

            async def refuse() -> NoReturn:
                raise BadKubeconfig(
                    "this process has no credentials for other clusters: start it with --cluster-credentials DIRECTORY"
                )

            return Client(refuse)
        path, context = directory / file, cluster.spec.context or None

        async def load() -> Configuration:
            if not path.exists():
                raise BadKubeconfig(f"there is no file {file} in the directory of credentials (--cluster-credentials)")
            return await load_kubeconfig(str(path), context)

        return Client(load)

    def version(self, cluster: Cluster) -> bytes | None:
        """Return a digest of the kubeconfig of a cluster, for comparison; None: it cannot be read."""
        directory, file = self._settings.cluster_credentials, cluster.spec.kubeconfig
        try:
            return None if directory is None or file is None else sha256((directory / file).read_bytes()).digest()
        except OSError:
            return None

    async def check(self, cluster: Cluster) -> list[str]:
        """Return what keeps a cluster from joining; it is connected to and asked for the rights that Sluice has there.

        The messages name files by what the author has written, never what they contain.
        """
        try:
            async with asyncio.timeout(CHECK_SECONDS), self.client(cluster) as client:
                missing = await self._missing(client)
                try:
                    identities = await cluster_identities(client)
                except RefusedByCluster:  # the rights that it takes are among those that are missing
                    return missing
                faults = []
                if cluster.spec.uid and cluster.spec.uid not in identities:
                    faults.append(f"spec.uid: the namespace kube-system of this cluster has the uid {identities[0]}")
                return faults + missing
        except TimeoutError:
            return [f"spec.kubeconfig: no answer within {CHECK_SECONDS:g} s; it joins when there is one"]
        except BadKubeconfig as error:
            file, directory = cluster.spec.kubeconfig, self._settings.cluster_credentials
            text = str(error) if directory is None else str(error).replace(str(directory / (file or "")), str(file))
            return [f"spec.kubeconfig: {text}"]
        except ClusterError as error:
            return [f"the cluster cannot be used yet: {error}"]

    async def _missing(self, client: Client) -> list[str]:
        """Return the rights that Sluice lacks, one message for each resource."""
        kinds = self.kinds()
        custom = [kind for kind in kinds if kind.is_custom]
        served = await served_versions(client, custom) if custom else {}
        queued = [
            _Right(kind.group, kind.plural, verbs(kind))
            for kind in kinds.gated
            if kind.plural and (not kind.is_custom or kind in served)
        ]
        slots = asyncio.Semaphore(_AT_ONCE)

        async def lacks(right: _Right, verb: str) -> bool:
            attributes: dict[str, Any] = {"group": right.group, "resource": right.resource, "verb": verb}
            attributes |= {"namespace": right.namespace, "name": right.name}
            spec = {"resourceAttributes": {key: value for key, value in attributes.items() if value}}
            body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
            async with slots:
                return not (await client.create(_REVIEWS, body)).get("status", {}).get("allowed")

        found = []
        for right in (*_RIGHTS, *queued):
            answers = await asyncio.gather(*(lacks(right, verb) for verb in right.verbs))
            if denied := [verb for verb, missing in zip(right.verbs, answers, strict=True) if missing]:
                resource = f"{right.resource}.{right.group}" if right.group else right.resource
                where = "/".join(filter(None, (right.namespace, right.name)))
                found.append(f"Sluice may not {', '.join(denied)} {resource}{f' {where}' if where else ''} there")
        hint = "apply deploy/rbac/sluice.yaml, and what `sluice kinds rbac` prints, in that cluster"
        return [*found, hint] if found else []

    async def _gate(self, cluster: Cluster, client: Client, kinds: Kinds, leads: Callable[[], bool]) -> None:
        """Register the gate of a cluster, and keep it registered until cancelled. Raises SluiceError."""
        scope = gate_scope(self._settings, await whoami(client))
        webhook = cluster.spec.webhook
        refresh: Callable[[], Awaitable[None]] = _nothing
        authority: Callable[[], bytes] = bytes
        with TemporaryDirectory(prefix="sluice-gate-") as directory:
            if webhook is not None and webhook.ca_file is None:
                assert webhook.service is not None
                host = f"{webhook.service.name}.{webhook.service.namespace}.svc"
                certificates = Certificates(Path(directory), [host], now=lambda: datetime.now(UTC))
                refresh = partial(
                    refresh_shared, client, certificates, namespace=webhook.service.namespace, name=CERTIFICATES
                )
                authority = partial(getattr, certificates, "ca_bundle")
            elif webhook is not None:
                authority = partial(_authority, self._settings.cluster_credentials, webhook)
            registration = None if webhook is None else Registration(kinds.gated, _endpoint(webhook), scope)
            reconciler = GateReconciler(
                client,
                "auto" if webhook is None else self._settings.admission,
                kinds.gated,
                scope,
                webhook=None if registration is None else lambda: registration.configuration(authority()),
                is_leader=leads,
                off=kinds.off,
            )
            await refresh()
            await reconciler.ensure()
            if webhook is None and not await reconciler.gates_by_policies():
                log.warning(
                    "cluster %s has no spec.webhook, and no admission policies gate its Jobs: those that are not "
                    "created suspended start there before Sluice can stop them",
                    cluster.name,
                )
            await reconciler.run(refresh=refresh)


class _UserConnection:
    """A connection for requests of users."""

    def __init__(self, spec: ClusterSpec, version: bytes | None, client: Client, kinds: Kinds) -> None:
        self.made_of = spec, version
        self.client = client
        self.kinds = kinds
        self.users = 0
        """Requests that use it, or wait for it."""
        self.opening = asyncio.create_task(client.__aenter__())
        self.opening.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def has_failed(self) -> bool:
        """Whether it could not be opened."""
        return self.opening.done() and (self.opening.cancelled() or self.opening.exception() is not None)

    async def close(self) -> None:
        """Close it, or give up to open it."""
        self.opening.cancel()
        await asyncio.wait([self.opening])
        if not self.has_failed:
            await self.client.__aexit__(None, None, None)


class Reaching:
    """Connections to clusters for requests of users. Used as context manager, which closes them.

    They are others than those by which the leader watches: every replica serves users, and logs that are followed must
    not use up connections that the leader needs. One is kept for some time after its last use, with its credentials.
    """

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters
        self._kept: dict[str, _UserConnection] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*self._closing, *(kept.close() for kept in self._kept.values()))

    @asynccontextmanager
    async def reach(self, cluster: Cluster) -> AsyncIterator[Reached]:
        """Context manager: a connection to a cluster. Raises ClusterError."""
        kept, version = self._kept.get(cluster.name), self._clusters.version(cluster)
        if kept is None or kept.made_of != (cluster.spec, version) or kept.has_failed:
            if kept is not None:
                self._close_unused(cluster.name, kept)
            client, kinds = self._clusters.client(cluster), self._clusters.kinds()
            kept = self._kept[cluster.name] = _UserConnection(cluster.spec, version, client, kinds)
        kept.users += 1
        try:
            # The end of one request does not end the attempt that others wait for.
            yield Reached(await asyncio.shield(kept.opening), kept.kinds)
        finally:
            kept.users -= 1
            pause = KEPT_SECONDS if self._kept.get(cluster.name) is kept else 0.0
            asyncio.get_running_loop().call_later(pause, self._close_unused, cluster.name, kept)

    def _close_unused(self, name: str, kept: _UserConnection) -> None:
        if kept.users:
            return
        if self._kept.get(name) is kept:
            del self._kept[name]
        task = asyncio.create_task(kept.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _nothing() -> None:
    """Refresh no certificates: those of this gate are not Sluice's."""


def _endpoint(webhook: ClusterWebhook) -> str | ServiceReference:
    if webhook.url is not None:
        return webhook.url
    assert webhook.service is not None
    return ServiceReference(webhook.service.namespace, webhook.service.name, webhook.service.port)


def _authority(directory: Path | None, webhook: ClusterWebhook) -> bytes:
    """Return the certificate that the gate's is verified with. Raises BadKubeconfig if it cannot be read."""
    assert webhook.ca_file is not None
    if directory is None:
        raise BadKubeconfig("this process has no credentials for other clusters (--cluster-credentials)")
    try:
        return (directory / webhook.ca_file).read_bytes()
    except OSError as error:
        raise BadKubeconfig(f"spec.webhook.caFile: {webhook.ca_file} cannot be read ({error.strerror})") from error


def kinds_of(settings: Settings) -> Kinds:
    """Return the enabled kinds, as for one cluster."""
    return settings.integrations.registry(
        kueue_labels=settings.accept_kueue_labels, excluded_namespaces=excluded_namespaces()
    )
