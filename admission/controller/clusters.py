"""Clusters beside `local`: one `RemoteCluster` for each `Cluster` object, which connects, claims and watches it.

A failure in a member closes that cluster only: its pending workloads are on hold, what it runs holds its quota, and the
other clusters go on. Its tasks are its own, so that a cluster that does not answer is waited for by nobody else.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from admission.cluster.api_server_probe import TIMEOUTS
from admission.cluster.claim import cluster_identities
from admission.cluster.errors import RefusedByCluster
from admission.cluster.identity import account_namespace
from admission.controller.state.faults import cause
from admission.controller.state.inbox import KindListed
from admission.model import sentences
from admission.model.errors import ClusterError, SluiceError, StoreError
from admission.store.joined_clusters import JoinedCluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.cluster.claim import Claim
    from admission.cluster.client import Client
    from admission.controller.site import Site
    from admission.kinds.registry import Kinds
    from admission.model.queues import Cluster
    from admission.store.store import Store

log = logging.getLogger(__name__)

INTERVAL: Final = 1.0
"""Seconds between two looks at the state of a cluster."""
FIRST_PAUSE: Final = 2.0
"""Seconds before the second attempt to join a cluster; the pause doubles with each further one ..."""
LONGEST_PAUSE: Final = 60.0
"""... up to this."""
_OWN_LOOK: Final = 60.0
"""Seconds for which a process itself finds a cluster lost before that is given up: nobody may have looked before."""
ANSWER_SECONDS: Final = sum(TIMEOUTS)
"""Seconds within which a cluster has to say which one it is, as it has for a probe; else it is given up late."""
CONNECT_SECONDS: Final = 90.0
"""Seconds that loading the credentials and the first requests may take together; an exec plugin has 60 of them."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How a cluster is reached."""

    client: Client
    """Not connected yet: it is entered, and left, by the member."""
    kinds: Kinds
    claim: Claim | None
    """The claim of the cluster for the database; None: it is not claimed."""
    gate: Callable[[], Awaitable[None]] | None = None
    """Registers the cluster's gate, and keeps it registered until cancelled."""
    would_stop: Callable[[], Awaitable[str]] | None = None
    """Says what the first connection would stop, to follow `it would`; empty: nothing."""
    version: Callable[[], object] = lambda: None
    """Returns another value when the kubeconfig has changed."""


class Join(Protocol):
    """Returns how a cluster is reached. A fault in its credentials shows when the client is entered."""

    def __call__(self, cluster: Cluster, /) -> Connection:
        """Return how the cluster is reached."""


class RemoteCluster:
    """A cluster beside `local`, until the connection to it has to be made anew: then another one takes its place.

    Its `site` is closed until it is known how the cluster is.
    """

    def __init__(
        self,
        cluster: Cluster,
        connection: Connection,
        site: Site,
        store: Store,
        former: RemoteCluster | None,
        *,
        unwanted: Callable[[], int],
        lost_timeout: float,
    ) -> None:
        """`former`: the one whose place it takes. `unwanted`: returns how many workloads must be stopped there first.

        `lost_timeout`: seconds for which it may be lost before what was dispatched to it is regarded as gone.
        """
        self._unwanted = unwanted
        self._lost_timeout = lost_timeout
        self.name = cluster.name
        self.spec = cluster.spec
        self.site = site
        self.has_ended = False
        """Whether it has let go of the cluster, so that requests may have been dropped."""
        self._is_outdated = False
        """Whether the Cluster asks for another connection than this one."""
        self._connection = connection
        self._store = store
        self._fault: str = "" if former is None else former._fault
        """Why it is not joined, as a message; empty: it is, or the first attempt is under way."""
        self._pause: float = FIRST_PAUSE if former is None else former._pause
        self._is_joined = False
        self._epoch = 0
        self._is_enabled, self._is_disabled = asyncio.Event(), asyncio.Event()
        unknown = JoinedCluster(cluster.name, "", "Connecting", store.now(), "")
        self._noted: JoinedCluster = unknown if former is None else former._noted
        """What is stored of it, or is to be."""
        self._is_loaded = former is not None
        self._lost_at: float | None = None if former is None else former._lost_at
        """When it was lost, or has last answered since then, by the monotonic clock; None: it is not lost."""
        self._missed_at: float = -math.inf if former is None else former._missed_at
        """When the last attempt to join it that has failed began, by the monotonic clock."""
        self._unstopped = 0
        """Number of workloads that it must stop before it is open, although it is back."""
        self._writing = asyncio.Lock()
        self._set_state()
        site.paused, site.is_listed = True, False
        site.given_up = former is not None and former.site.given_up
        self._close()

    def _set_state(self) -> None:
        wanted, other = self._is_enabled, self._is_disabled
        if self.spec.state == "Disabled":
            wanted, other = other, wanted
        wanted.set()
        other.clear()

    @property
    def is_lost(self) -> bool:
        """Whether it is not certain how the cluster is, although no admin has disabled it."""
        return self.site.is_lost and self.spec.state != "Disabled"

    def follows(self, cluster: Cluster) -> bool:
        """Take over the state that an admin wants; return whether it goes on as it is with the other fields."""
        before, self.spec = self.spec, cluster.spec
        self._set_state()
        self._is_outdated |= before.model_copy(update={"state": cluster.spec.state}) != cluster.spec
        return not (self.has_ended or self._is_outdated)

    async def run(self, *, epoch: int, on_end: Callable[[], None]) -> None:
        """Connect, and follow the cluster until it is let go of, or cancelled. `on_end`: called in the first case."""
        self._epoch = epoch
        await self._load()
        state = asyncio.create_task(self._watch_state(), name=f"state of {self.name}")
        try:
            while not self._is_joined:
                await self._is_enabled.wait()
                began = self._store.now.elapsed()
                try:
                    await self._join(epoch)
                except Exception as error:  # noqa: BLE001  whatever a cluster answers must not end the others
                    self._fault, self._missed_at = _text(error), began  # `_watch_state` logs it
                    if self._store.now.elapsed() - began > LONGEST_PAUSE:
                        self._pause = FIRST_PAUSE
                    self._close()
                    await asyncio.sleep(self._pause)
                    self._pause = min(2 * self._pause, LONGEST_PAUSE)
            self.has_ended = True
            on_end()
        finally:
            state.cancel()

    async def _join(self, epoch: int) -> None:
        """Connect, and follow the cluster until something fails, or it is disabled."""
        claim, version = self._connection.claim, self._connection.version()
        try:
            async with asyncio.timeout(CONNECT_SECONDS) as limit, self._connection.client as client:
                await self._check_identity(client)
                self.site.own_namespace = await account_namespace(client)
                if self._noted.key is None:
                    await self._note(key=token_hex(32))
                self.site.copies.key = self._noted.key or ""
                if claim is not None:
                    await self._take(claim, epoch)
                limit.reschedule(None)
                try:
                    await self._follow(client, version)
                finally:
                    if claim is not None and self.site.watches.probe.failure is None:
                        await claim.release()
        except TimeoutError as error:
            raise ClusterError(f"neither credentials nor answers within {CONNECT_SECONDS:g} s") from error
        finally:
            self.site.paused, self.site.is_listed = True, False

    async def _follow(self, client: Client, version: object) -> None:
        site, claim = self.site, self._connection.claim
        async with asyncio.TaskGroup() as group:
            works = [site.watches.run(), site.run(), self._check_again(client, version), self._register_gate()]
            works.append(site.see_capacity(epoch=self._epoch))
            works += [] if claim is None else [claim.keep()]
            tasks = [group.create_task(work, name=f"cluster {self.name}") for work in works]
            self._fault, self._is_joined, site.paused = "", True, False
            self._answered()
            log.info("joined the cluster %s at %s", self.name, client.server)
            await site.watches.objects_synced.wait()
            await site.watches.context_synced()
            # What was not observed is read: it has ended, or was deleted, while the cluster was not watched.
            site.inbox.put(KindListed(site.watches.unlisted()))
            site.is_listed = True
            await self._is_disabled.wait()
            for task in tasks:
                task.cancel()

    async def _take(self, claim: Claim, epoch: int) -> None:
        """Claim the cluster. Raises RefusedByCluster if another database has a Sluice that runs for it."""
        found = await claim.read()
        if found is not None and found.database != claim.database:
            if await claim.is_alive(found):
                raise RefusedByCluster(
                    f"another Sluice, {found.holder}, decides for it with the database {found}: take it out of one of "
                    "the two"
                )
            found = await claim.read()
        claim.permit(cluster=self._noted.identity, replacing=found)
        await claim.take(epoch=epoch)

    async def _register_gate(self) -> None:
        """Keep the gate registered; what fails is said in the log, and repeated."""
        pause = FIRST_PAUSE
        while (register := self._connection.gate) is not None:
            try:
                await register()
            except SluiceError as error:
                log.warning("cluster %s: its gate is not registered: %s", self.name, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    # --- what is stored

    async def _load(self) -> None:
        """Read what is stored of the cluster, above all by which uid it is recognised."""
        while not self._is_loaded:
            try:
                self._noted = (await self._store.joined_clusters.load()).get(self.name, self._noted)
                self._is_loaded = True
            except StoreError as error:
                log.warning("cluster %s waits for the database: %s", self.name, error)
                await asyncio.sleep(FIRST_PAUSE)

    async def _note(self, **fields: Any) -> None:
        """Store what is known now. Raises StoreError, and RefusedByCluster if the cluster has joined twice."""
        async with self._writing:
            wanted = self._noted._replace(**fields)
            if other := await self._store.joined_clusters.note(wanted, epoch=self._epoch):
                raise RefusedByCluster(f"it has joined already, as {other}: delete one of the two")
            self._noted = wanted

    # --- identity

    async def _check_identity(self, client: Client) -> None:
        """Raise RefusedByCluster if it is not the cluster that it was, unless an admin has accepted that."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await cluster_identities(client)
        except TimeoutError as error:
            raise ClusterError(f"{client.server} does not answer: {ANSWER_SECONDS:g} s were not enough") from error
        expected = self.spec.uid or self._noted.identity
        if expected and expected not in found:
            survey = self._connection.would_stop
            effect = "" if survey is None else await survey()
            raise RefusedByCluster(
                f"it is another cluster than before: its namespace kube-system has the uid {found[0]}, and had "
                f"{expected}. If the former one is gone for good, set spec.uid to the new one; what ran there is then "
                "regarded as gone" + (f", and Sluice would {effect}" if effect else "")
            )
        if self._noted.identity not in found and (
            other := await self._store.joined_clusters.known_as(found[0], besides=self.name)
        ):
            raise RefusedByCluster(f"it has joined already, as {other}: delete one of the two")
        if not expected and (survey := self._connection.would_stop) is not None and (effect := await survey()):
            raise RefusedByCluster(
                f"it is new to the database, which would {effect}; set spec.uid to {found[0]} if that is intended"
            )
        if self._noted.identity not in found:
            await self._note(identity=found[0])

    async def _check_again(self, client: Client, version: object) -> NoReturn:
        """Check the identity again after each outage, before anything that the cluster has said is processed.

        Raises ClusterError if the kubeconfig changes during an outage: it may name another address, or credentials of
        another sort, of which a client that is connected takes only some.
        """
        probe = self.site.watches.probe
        while True:
            await asyncio.sleep(INTERVAL / 4)
            if (failure := probe.failure) is not None:
                self.site.paused = True
                if self._connection.version() != version:
                    raise ClusterError(f"its kubeconfig has changed, it is connected anew: {failure}")
            elif self.site.paused:
                self._answered()
                await self._check_identity(client)
                self.site.paused = False
                self.site.inbox.wake()

    # --- state

    def _look(self) -> tuple[str, str]:
        """Return the present state, and why, to follow the name of the cluster."""
        if self.spec.state == "Disabled":
            return "Disabled", "is disabled"
        self._unstopped = 0
        waiting = "Connecting" if self._noted.state == "Connecting" or not self._noted.identity else "Lost"
        if self._fault:
            return waiting, f"cannot be used: {self._fault}"
        if (failure := self.site.watches.probe.failure) is not None and self._is_joined:
            return "Lost", f"is lost: {failure}"
        if not self.site.is_listed or self.site.paused:
            return waiting, "is not connected yet"
        if count := self._unwanted():
            self._unstopped = count
            return waiting, sentences.stops_former_copies(count)
        if self.spec.state == "Draining":
            return "Draining", "is draining"
        return "Active", ""

    def _close(self) -> None:
        """Close or open the site, as the state is now."""
        state, why = self._look()
        self.site.closed_as = self._closed_as(state)
        self.site.close(self._sentence(state, why), is_lost=state not in ("Active", "Draining"))
        is_silent = state == "Lost" and (self.site.paused or not self.site.is_listed)
        is_over = self._lost_for() >= self._lost_timeout  # at each look: it notes when it is not lost any more
        self.site.give_up(given_up=is_silent and (self.site.given_up or (is_over and self._is_out_of_reach())))

    def _is_out_of_reach(self) -> bool:
        """Whether a cluster that was lost for too long is so now: an attempt to join it that began later has failed.

        One that is joined, but still not listed after that time, is so, too.
        """
        if self._is_joined:
            return self.site.watches.probe.failure is not None or not self.site.paused
        return self._lost_at is not None and self._missed_at >= self._lost_at + self._lost_timeout

    def _answered(self) -> None:
        """Count the time for which it is lost from now on: it has answered, although it is not known yet how it is."""
        self._lost_at = self._store.now.elapsed()

    def _lost_for(self) -> float:
        """Return the seconds for which it has been lost: by the monotonic clock, as far as this process has seen it."""
        now = self._store.now
        if self._noted.state != "Lost":
            self._lost_at = None
            return 0.0
        if self._lost_at is None:
            before = min(now() - self._noted.since, self._lost_timeout - _OWN_LOOK)
            self._lost_at = now.elapsed() - max(0.0, before)
        return now.elapsed() - self._lost_at

    def _sentence(self, state: str, why: str) -> str:
        if not why:
            return ""
        is_silent = state == "Lost" and not self._unstopped
        return sentences.cluster_closed(self.name, f"{why} (since {self._since(state)})" if is_silent else why)

    def _closed_as(self, state: str) -> str:
        """Return the state for messages to those who could be dispatched to the cluster."""
        match state:
            case "Active":
                return ""
            case _ if self._unstopped:
                return f"it {sentences.stops_former_copies(self._unstopped)}"
            case "Lost":
                return sentences.lost_since(self._since(state))
            case _:
                return sentences.is_not_active(state)

    def _since(self, state: str) -> str:
        since = self._noted.since if self._noted.state == state else self._store.now()
        return sentences.minute(since)

    async def _watch_state(self) -> NoReturn:
        """Open and close the site, and write the state, whenever it changes."""
        said: object = None
        while True:
            state, why = self._look()
            noted = self._noted
            if (noted.state, noted.message) != (state, why):
                since = noted.since if noted.state == state else self._store.now()
                is_new, said = said != (state, why), (state, why)
                if is_new:
                    level = logging.WARNING if self._fault else logging.INFO
                    log.log(level, "cluster %s: %s%s", self.name, state, f": {why}" if why else "")
                try:
                    await self._note(state=state, since=since, message=why)
                except (RefusedByCluster, StoreError) as error:
                    if is_new:
                        log.warning("the state of the cluster %s is not written: %s", self.name, error)
            self._close()
            await asyncio.sleep(INTERVAL)


def _text(error: BaseException) -> str:
    """Return the message of the first failure, without the group that it came in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) if isinstance(error, SluiceError) or not isinstance(error, Exception) else cause(error)
