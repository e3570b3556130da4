"""Evaluation of responses to TokenReviews and SubjectAccessReviews: an unclear response denies access."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from admission.api.auth.delegation import Attributes, Delegation
from admission.api.auth.identity import AuthMethod, Identity
from admission.api.errors import ReviewUnavailable
from admission.cluster.client import Client

ALICE = {"username": "alice", "uid": "4", "groups": ["team-a"], "extra": {"b": ["2"], "a": ["1"]}}


class Cluster:
    """API server that gives the same answer to every request, and records the requests."""

    def __init__(self, folder: Path) -> None:
        self._kubeconfig = folder / "kubeconfig"
        self.asked: list[dict[str, Any]] = []
        self.status: Any = {}
        self.code = 200

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        return web.json_response(self.asked[-1] | {"status": self.status}, status=self.code)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        app = web.Application()
        app.router.add_post("/{path:.*}", self.answer)
        async with TestServer(app) as server:
            url = str(server.make_url("/")).rstrip("/")
            content = {
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
            self._kubeconfig.write_text(yaml.safe_dump(content))
            async with Client.from_kubeconfig(str(self._kubeconfig)) as client:
                yield client


@pytest.fixture
async def cluster(tmp_path):
    return Cluster(tmp_path)


async def test_token_review_yields_the_identity_of_the_user(cluster, clock):
    cluster.status = {"authenticated": True, "user": ALICE}
    async with cluster.client() as client:
        found = await Delegation(client, clock=clock).user("secret", source="192.0.2.7")
    extra = (("a", ("1",)), ("b", ("2",)))
    assert found == Identity("alice", AuthMethod.TOKEN, uid="4", groups=("team-a",), extra=extra, source="192.0.2.7")
    assert [review["spec"] for review in cluster.asked] == [{"token": "secret"}]


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"user": ALICE},
        {"authenticated": False, "user": ALICE},
        {"authenticated": "true", "user": ALICE},
        {"authenticated": True},
        {"authenticated": True, "user": {}},
        {"authenticated": True, "user": {"username": ""}},
        {"authenticated": True, "user": {"groups": ["system:masters"]}},
        {"authenticated": True, "user": "alice"},
        None,
        "authenticated",
    ],
)
async def test_invalid_token_review_response_authenticates_no_user(cluster, clock, status):
    cluster.status = status
    async with cluster.client() as client:
        assert await Delegation(client, clock=clock).user("secret", source="") is None


@pytest.mark.parametrize(
    ("audiences", "is_alice"),
    [(["sluice"], True), (["other", "sluice"], True), (["other"], False), ([], False), (None, False)],
)
async def test_token_must_have_a_configured_audience(cluster, clock, audiences, is_alice):
    # An API server that knows of no audiences leaves them out, which must not be taken for a yes.
    cluster.status = {"authenticated": True, "user": ALICE, "audiences": audiences}
    async with cluster.client() as client:
        found = await Delegation(client, audiences=("sluice",), clock=clock).user("secret", source="")
    assert (found is not None) is is_alice
    assert cluster.asked[0]["spec"] == {"token": "secret", "audiences": ["sluice"]}


@pytest.mark.parametrize(
    ("status", "allowed"),
    [
        ({"allowed": True}, True),
        ({"allowed": True, "reason": "RBAC"}, True),
        ({"allowed": True, "denied": True}, False),
        ({"allowed": False}, False),
        ({"allowed": False, "evaluationError": "cannot say"}, False),
        ({"allowed": "yes"}, False),
        ({}, False),
        (None, False),
    ],
)
async def test_access_is_allowed_only_by_an_unambiguous_subject_access_review(cluster, clock, status, allowed):
    cluster.status = status
    wanted = Attributes("get", "workloads", "explain", "team-a", "x")
    async with cluster.client() as client:
        assert await Delegation(client, clock=clock).allows(Identity("alice", AuthMethod.TOKEN), wanted) is allowed
    assert cluster.asked[0]["spec"]["resourceAttributes"] == {
        "verb": "get",
        "group": "sluice.dev",
        "version": "v1",
        "resource": "workloads",
        "subresource": "explain",
        "namespace": "team-a",
        "name": "x",
    }


@pytest.mark.parametrize("code", [400, 401, 403, 404, 500])
async def test_failed_review_raises_review_unavailable_and_is_not_cached(cluster, clock, code):
    cluster.code, cluster.status = code, {"authenticated": True, "allowed": True, "user": ALICE}
    async with cluster.client() as client:
        delegation = Delegation(client, clock=clock)
        for _ in range(2):
            with pytest.raises(ReviewUnavailable, match="did not answer a TokenReview"):
                await delegation.user("secret", source="")
            with pytest.raises(ReviewUnavailable, match="did not answer a SubjectAccessReview"):
                await delegation.allows(Identity("alice", AuthMethod.TOKEN), Attributes("get", path="/metrics"))
        cluster.code = 200
        assert await delegation.user("secret", source="") is not None


async def test_cached_access_review_is_not_shared_between_identities(cluster, clock):
    wanted = Attributes("list", "cohorts")
    users = [
        Identity("alice", AuthMethod.TOKEN),
        Identity("bob", AuthMethod.TOKEN),
        Identity("alice", AuthMethod.TOKEN, groups=("a",)),
        Identity("alice", AuthMethod.TOKEN, uid="5"),
        Identity("alice", AuthMethod.TOKEN, extra=(("scopes", ("read",)),)),
    ]
    async with cluster.client() as client:
        delegation = Delegation(client, clock=clock)
        for user in users:
            cluster.status = {"allowed": user is users[0]}
            assert await delegation.allows(user, wanted) is (user is users[0])
        assert await delegation.allows(users[0], wanted) is True
    assert len(cluster.asked) == len(users)
