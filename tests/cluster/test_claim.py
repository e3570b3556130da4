"""The Lease by which one database claims a cluster: claims, renewal, replacement, loss, identity of the cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from admission.cluster.claim import LEASE_DURATION, RENEW_DEADLINE, RENEW_PERIOD, Claim, Claimant, cluster_identities
from admission.cluster.client import Client
from admission.cluster.errors import LeaseLost, RefusedByCluster
from admission.sandbox import Sandbox
from tests.user_permissions import allow

LEASE = ("leases", "kube-system", "sluice-database")
COORDINATION = ["coordination.k8s.io"]


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(controllers=False) as sandbox:
        yield sandbox


@asynccontextmanager
async def client_of(sandbox: Sandbox, folder: Path, user: str) -> AsyncIterator[Client]:
    sandbox.write_kubeconfig(folder / user, user)
    async with Client.from_kubeconfig(str(folder / user)) as client:
        yield client


@pytest.fixture
async def client(sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[Client]:
    async with client_of(sandbox, tmp_path, "sluice") as client:
        yield client


class VirtualTime:
    """Virtual clock that advances with each sleep; `meanwhile` is awaited in each sleep."""

    def __init__(self, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
        self.now = 1000.0
        self._meanwhile = meanwhile

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self._meanwhile is not None:
            await self._meanwhile()
        await asyncio.sleep(0)


def claim_of(
    client: Client,
    database: str,
    time: VirtualTime,
    holder: str = "",
    *,
    election: str = "",
    stored: tuple[int, int] = (7, 12),
) -> Claim:
    async def read_stored() -> tuple[int, int]:
        return stored

    claim = Claim(
        client, database=database, location=f"/{database}.db", holder=holder or f"process-of-{database}", clock=time,
        sleep=time.sleep, election=election, revision=lambda: stored[1], stored=read_stored,
    )  # fmt: skip
    claim.permit(cluster="", replacing=None)
    return claim


async def read_claim(claim: Claim) -> Claimant:
    found = await claim.read()
    assert found is not None
    return found


async def test_claim_lease_records_database_epoch_and_holder_until_release(client: Client):
    claim = claim_of(client, "mine", VirtualTime())
    assert await claim.read() is None
    await claim.take(epoch=7)
    found = await read_claim(claim)
    assert (found.database, found.location, found.epoch, found.holder) == ("mine", "/mine.db", 7, "process-of-mine")
    assert found.revision == 12
    await claim.release()
    found = await read_claim(claim)
    assert (found.database, found.epoch, found.holder) == ("mine", 7, "")


async def test_exactly_one_of_several_concurrent_claims_succeeds(client: Client):
    claims = [claim_of(client, name, VirtualTime()) for name in ("a", "b", "c")]
    outcomes = await asyncio.gather(*(claim.take(epoch=1) for claim in claims), return_exceptions=True)
    (winner,) = [claim for claim, outcome in zip(claims, outcomes, strict=True) if outcome is None]
    refused = [str(outcome) for outcome in outcomes if isinstance(outcome, RefusedByCluster)]
    assert len(refused) == 2
    assert all(each.startswith(f"the database {winner} has claimed the cluster") for each in refused)
    assert [claim for claim in claims if claim.holds()] == [winner]
    assert (await read_claim(winner)).database == winner.database


async def test_claimant_is_alive_while_it_renews_and_dead_after_expiry_or_release(client: Client):
    time = VirtualTime()
    first = claim_of(client, "first", time)
    await first.take(epoch=1)

    watching = VirtualTime()
    second = claim_of(client, "second", watching)
    assert not await second.is_alive(await read_claim(second))
    assert LEASE_DURATION <= watching.now - 1000 <= LEASE_DURATION + RENEW_PERIOD

    renewing = VirtualTime(lambda: first.take(epoch=1))
    second = claim_of(client, "second", renewing)
    assert await second.is_alive(await read_claim(second))
    assert renewing.now - 1000 <= RENEW_PERIOD

    ending = VirtualTime(first.release)
    second = claim_of(client, "second", ending)
    assert not await second.is_alive(await read_claim(second))
    assert ending.now - 1000 <= RENEW_PERIOD


async def test_claim_knows_when_the_one_before_was_last_renewed(client: Client):
    former, later = (claim_of(client, "a", VirtualTime(), holder) for holder in ("one", "other"))
    began = time.time()
    await former.take(epoch=7)
    await later.take(epoch=7)
    assert former.renewed_before is None
    assert later.renewed_before is not None
    assert began - 1e-3 <= later.renewed_before <= time.time()


async def test_claim_is_replaced_only_if_unchanged_since_it_was_read(client: Client):
    first, second = claim_of(client, "first", VirtualTime()), claim_of(client, "second", VirtualTime())
    await first.take(epoch=1)
    second.permit(cluster="", replacing=await read_claim(second))
    await first.take(epoch=1)  # renewed since it was read
    with pytest.raises(RefusedByCluster, match=r"the database /first.db \(first\) has claimed"):
        await second.take(epoch=1)
    second.permit(cluster="", replacing=await read_claim(second))
    await second.take(epoch=1)
    assert (await read_claim(first)).database == "second"


async def test_claim_lapses_before_it_may_be_replaced_and_ends_when_replaced(client: Client):
    time = VirtualTime()
    first, second = claim_of(client, "first", time), claim_of(client, "second", VirtualTime())
    await first.take(epoch=1)
    assert first.holds()
    time.now += RENEW_DEADLINE
    assert not first.holds()
    assert RENEW_DEADLINE < LEASE_DURATION
    second.permit(cluster="", replacing=await read_claim(second))
    await second.take(epoch=1)
    with pytest.raises(RefusedByCluster, match=r"the database /second.db"):
        await first.keep()
    assert not first.holds()
    assert (await read_claim(first)).database == "second"


async def test_second_process_on_the_same_database_ends_the_first_claim(client: Client):
    first, second = claim_of(client, "db", VirtualTime(), "one"), claim_of(client, "db", VirtualTime(), "two")
    await first.take(epoch=1)
    await second.take(epoch=2)
    with pytest.raises(LeaseLost, match="two leads now"):
        await first.keep()


async def test_another_copy_of_the_database_replaces_the_claim_only_if_that_is_permitted(client: Client):
    first = claim_of(client, "db", VirtualTime(), "one", election="default/sluice")
    await first.take(epoch=7)
    found = await read_claim(first)
    for stored in ((8, 11), (6, 12)):
        copy = claim_of(client, "db", VirtualTime(), "two", election="default/sluice", stored=stored)
        with pytest.raises(RefusedByCluster, match=r"older copy .* give all replicas the same --database-url"):
            await copy.take(epoch=stored[0])
        assert await read_claim(first) == found
    for leaders in ({7: "three", 8: "two"}, {6: "one", 7: "two"}):  # copies that were used on their own
        copy = claim_of(client, "db", VirtualTime(), "two", election="default/sluice", stored=(8, 20))
        with pytest.raises(RefusedByCluster, match="another copy"):
            await copy.take(epoch=8, leaders=leaders)
    copy.permit(cluster="", replacing=found)
    await copy.take(epoch=8, leaders={7: "three", 8: "two"})
    assert (await read_claim(first)).holder == "two"


async def test_process_of_another_election_ends_the_first_process_instead_of_its_lead(client: Client):
    first = claim_of(client, "db", VirtualTime(), "one", election="default/sluice")
    second = claim_of(client, "db", VirtualTime(), "two", election="default/other")
    await first.take(epoch=1)
    assert not second.has_election_of(await read_claim(first))
    await second.take(epoch=2)
    with pytest.raises(RefusedByCluster, match=r"two, decides .* and the Lease default/other, .* default/sluice:"):
        await first.keep()


async def test_deleted_lease_is_recreated_only_in_the_same_cluster(sandbox: Sandbox, client: Client):
    admin = sandbox.local("admin")
    (cluster,) = await cluster_identities(client)
    assert cluster == admin.get("namespaces", "", "kube-system")["metadata"]["uid"]

    async def delete() -> None:
        if deletions.pop():
            await admin.delete(*LEASE)

    for own in (cluster, "the-one-before"):
        deletions = [False, True]
        claim = claim_of(client, "mine", VirtualTime(delete))
        claim.permit(cluster=own, replacing=None)
        await claim.take(epoch=1)
        if own == cluster:
            with pytest.raises(IndexError):
                await claim.keep()
            assert claim.holds()
        else:
            with pytest.raises(RefusedByCluster, match="is the API server of another cluster now"):
                await claim.keep()
            assert not claim.holds()
            assert admin.get(*LEASE) is None


async def grant(sandbox: Sandbox, user: str, *rules: Any) -> None:
    await allow(sandbox.local("admin"), user, *rules, namespace="kube-system")


async def test_cluster_is_identified_by_the_lease_if_namespaces_cannot_be_read(sandbox, client, tmp_path):
    leases = {"apiGroups": COORDINATION, "resources": ["leases"], "verbs": ["create", "get", "update"]}
    await grant(sandbox, "alice", leases)
    async with client_of(sandbox, tmp_path, "alice") as poor:
        (identity,) = await cluster_identities(poor)
        assert await cluster_identities(poor) == (identity,)
        await claim_of(poor, "mine", VirtualTime()).take(epoch=1)
        assert await cluster_identities(poor) == (identity,)
    assert identity == sandbox.local("admin").get(*LEASE)["metadata"]["uid"]
    assert identity in await cluster_identities(client)  # still recognised once namespaces can be read


async def test_error_for_a_missing_permission_names_the_manifest_to_apply(sandbox, tmp_path):
    async with client_of(sandbox, tmp_path, "alice") as poor:
        with pytest.raises(RefusedByCluster, match=r"kube-system/sluice-database: apply deploy/rbac/sluice.yaml"):
            await claim_of(poor, "mine", VirtualTime()).take(epoch=1)
