"""Fair shares of the reviews in flight: a user who causes many of them makes no other user's requests wait or fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from queue_objects import cluster_queue, local_queue

from admission.api.application import create_app, listening
from admission.api.auth import delegation
from admission.api.auth.delegation import Attributes, Delegation, ReviewSlots
from admission.api.auth.identity import AuthMethod, Identity
from admission.api.errors import ReviewUnavailable
from admission.api.registry import PREFIX
from admission.api.watch import watch_request
from admission.cluster.client import Client
from admission.model.manifests import parse_manifest
from admission.store.audit_log import Author
from admission.store.store import Store


class Cluster:
    """API server that knows tokens as user names, allows everything, and answers SubjectAccessReviews when told to."""

    def __init__(self) -> None:
        self.held: dict[str, asyncio.Event] = {}
        """The event that ends the wait of a user's reviews; the others are answered at once."""
        self.changed = asyncio.Condition()
        self.asked: Counter[str] = Counter()
        self.in_flight: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.seconds = 0.0
        self.code = 201
        self.denied: set[str] = set()

    async def answer(self, request: web.Request) -> web.Response:
        review = await request.json()
        spec = review["spec"]
        if "token" in spec:
            return web.json_response({"status": {"authenticated": True, "user": {"username": spec["token"]}}})
        user = spec["user"]
        async with self.changed:
            self.asked[user] += 1
            self.in_flight[user] += 1
            self.most[user] = max(self.most[user], self.in_flight[user])
            self.changed.notify_all()
        await asyncio.sleep(self.seconds)
        if user in self.held:
            await self.held[user].wait()
        self.in_flight[user] -= 1
        return web.json_response({"status": {"allowed": user not in self.denied}}, status=self.code)

    async def has(self, user: str, in_flight: int) -> None:
        """Wait until the cluster has this number of reviews of the user to answer."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.in_flight[user] >= in_flight)

    @asynccontextmanager
    async def client(self, folder: Path) -> AsyncIterator[Client]:
        app = web.Application()
        app.router.add_post("/{path:.*}", self.answer)
        async with TestServer(app) as server:
            content = {
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": str(server.make_url("/")).rstrip("/")}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
            kubeconfig = folder / "kubeconfig"
            kubeconfig.write_text(yaml.safe_dump(content))
            async with Client.from_kubeconfig(str(kubeconfig)) as client:
                yield client


class Api:
    """The API at `url`, whose users' tokens are their names."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def get(self, user: str, path: str) -> tuple[int, Any]:
        async with self._session.get(self._url + path, headers={"Authorization": f"Bearer {user}"}) as response:
            return response.status, await response.json()

    async def review(self, user: str, batch: int, *, size: int = 100) -> tuple[int, Any]:
        """Ask for rights to `size` ClusterQueues that no other batch asks for."""
        reviews = [{"verb": "get", "resource": "clusterqueues", "name": f"{batch}-{each}"} for each in range(size)]
        headers = {"Authorization": f"Bearer {user}"}
        async with self._session.post(
            f"{self._url}/session/access", json={"reviews": reviews}, headers=headers
        ) as response:
            return response.status, await response.json()

    @asynccontextmanager
    async def watch(self, user: str) -> AsyncIterator[aiohttp.ClientResponse]:
        url = f"{self._url}{PREFIX}/clusterqueues?watch=1"
        async with self._session.get(url, headers={"Authorization": f"Bearer {user}"}) as response:
            yield response


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def api(
    store: Store, tmp_path: Path, cluster: Cluster, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Api]:
    monkeypatch.setattr(delegation, "REVIEW_SECONDS", 600.0)  # the cluster holds reviews for as long as a test needs
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(cluster.client(tmp_path))
        app = create_app(store, checks={}, delegation=Delegation(client, clock=clock), clock=clock)
        url = await stack.enter_async_context(listening(app, "127.0.0.1", 0))
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        yield Api(url, session)


@pytest.mark.costly
async def test_other_users_are_answered_while_one_waits_for_thousands_of_reviews(api, cluster):
    cluster.held["mallory"] = asyncio.Event()
    flood = [asyncio.create_task(api.review("mallory", batch)) for batch in range(50)]
    await cluster.has("mallory", 3)
    for user in ("alice", "bob"):
        assert (await api.get(user, f"{PREFIX}/clusterqueues"))[0] == 200
        assert (await api.review(user, 0))[0] == 200
        assert await api.get(user, "/session/namespaces") == (200, {"all": True, "namespaces": []})
    assert cluster.most["mallory"] == 3
    cluster.code = 500  # it ends the batches
    cluster.held["mallory"].set()
    await asyncio.gather(*flood)


@pytest.mark.costly
async def test_user_with_too_many_waiting_reviews_gets_429_that_names_the_limit(api, cluster):
    cluster.held["mallory"] = asyncio.Event()
    flood = [asyncio.create_task(api.review("mallory", batch, size=3)) for batch in range(80)]
    refused, _ = await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
    for task in refused:
        status, body = await task
        assert (status, body["details"]["retryAfterSeconds"]) == (429, 1)
        assert body["message"] == (
            "requests of mallory need 200 SubjectAccessReviews that wait to be sent, which is the most that Sluice "
            "allows; send fewer requests at the same time"
        )
    assert (await api.get("alice", f"{PREFIX}/clusterqueues"))[0] == 200
    cluster.held["mallory"].set()
    statuses = [status for status, _ in await asyncio.gather(*flood)]
    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= 60
    assert (await api.review("mallory", 99))[0] == 200


async def test_batch_sends_no_further_reviews_after_one_has_failed(api, cluster):
    cluster.code = 500
    status, body = await api.review("alice", 0)
    assert (status, "the cluster did not answer a SubjectAccessReview" in body["message"]) == (503, True)
    assert 1 <= cluster.asked["alice"] <= 3


async def test_user_with_several_namespaces_shares_the_reviews_of_all_pages(api, cluster, store):
    names = [f"team-{number:02}" for number in range(20)]
    for document in (cluster_queue("one"), *(local_queue("main", name, "one") for name in names)):
        await store.queues.create(parse_manifest(document), author=Author("ada"))
    cluster.denied.add("alice")
    cluster.held["alice"] = asyncio.Event()
    pages = [asyncio.create_task(api.get("alice", "/session/namespaces")) for _ in range(5)]
    await cluster.has("alice", 1)
    cluster.held["alice"].set()
    assert [status for status, _ in await asyncio.gather(*pages)] == [200] * 5
    assert (cluster.asked["alice"], cluster.most["alice"]) == (21, 3)


@pytest.mark.costly
async def test_watch_ends_when_its_user_prevents_its_authorization_by_a_flood(api, cluster, clock, monkeypatch):
    monkeypatch.setattr(watch_request, "RECHECK_SECONDS", 0.01)
    async with api.watch("mallory") as watch:
        assert watch.status == 200
        cluster.held["mallory"] = asyncio.Event()
        flood = [asyncio.create_task(api.review("mallory", batch, size=3)) for batch in range(80)]
        await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
        clock.advance(60)
        event = await watch.content.readline()
        assert b'"code":429' in event
    cluster.held["mallory"].set()
    await asyncio.gather(*flood)


def _wanted(number: int) -> Attributes:
    return Attributes("get", "clusterqueues", name=str(number))


@pytest.mark.virtual_time
async def test_wait_for_other_reviews_is_no_part_of_the_timeout_of_a_review(tmp_path, cluster, clock):
    cluster.seconds = 2.0
    alice = Identity("alice", AuthMethod.TOKEN)
    async with cluster.client(tmp_path) as client:
        delegation = Delegation(client, clock=clock)
        assert all(await asyncio.gather(*(delegation.allows(alice, _wanted(number)) for number in range(60))))


@pytest.mark.virtual_time
async def test_nobody_waits_for_the_timeouts_of_others_in_an_outage(tmp_path, cluster, clock):
    cluster.seconds = 1000.0
    users = [Identity(f"user-{number}", AuthMethod.TOKEN) for number in range(100)]
    loop = asyncio.get_running_loop()
    async with cluster.client(tmp_path) as client:
        delegation = Delegation(client, clock=clock)
        began = loop.time()
        answers = await asyncio.gather(
            *(delegation.allows(user, _wanted(number)) for user in users for number in range(3)), return_exceptions=True
        )
        assert {type(answer) for answer in answers} == {ReviewUnavailable}
        assert loop.time() - began == pytest.approx(5, abs=1)


async def test_users_take_turns_and_a_cancelled_review_leaves_its_place_to_the_next():
    slots, order = ReviewSlots(slots=1, each=1, waiting=3), []
    begun, end = asyncio.Event(), asyncio.Event()

    async def review(user: str, name: str) -> None:
        async with slots.slot(user):
            order.append(name)
            begun.set()
            await end.wait()

    names = ("a1", "a2", "a3", "a4", "b1", "b2", "c1")
    tasks = {name: asyncio.create_task(review(name[0], name)) for name in names}
    await begun.wait()
    assert slots.is_full("a")
    for name in ("c1", "a3"):
        tasks[name].cancel()
    await asyncio.wait([tasks["a3"]])
    assert not slots.is_full("a")
    end.set()
    await asyncio.wait(tasks.values())
    assert order == ["a1", "a2", "b1", "a4", "b2"]
