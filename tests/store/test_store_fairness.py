"""What ClusterQueues were entitled to and received, and who lent to whom, from ledger and object history."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.model.manifests import parse_manifest
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.audit_log import Author
from admission.store.ledger.fairness import FlavorResource, LoanKey, Share, TreeNode, entitlements
from admission.store.records import Changes, Closed, Opened, State, WorkloadRecord
from admission.store.store import Store
from tests.conftest import Clock
from tests.queue_objects import create_objects, manifest, resource_group

HOUR = 3600.0
NOW = 480_000 * HOUR
GPU = "nvidia.com/gpu"
H100 = FlavorResource("h100", GPU)


def node(
    kind: str, name: str, cohort: str = "", nominal: int = 0, weight: float = 1.0, limit: int | None = None
) -> TreeNode:
    return TreeNode(kind, name, cohort, weight, {H100: nominal}, {H100: limit}, {H100: nominal})


def tree(*children: TreeNode, nominal: int = 0) -> TreeNode:
    root = node("Cohort", "all", nominal=nominal)
    root.children.extend(children)
    return root


def test_unused_quota_is_divided_by_weight_to_nobody_more_than_wanted():
    root = tree(
        node("ClusterQueue", "idle", "all", 12),
        node("ClusterQueue", "heavy", "all", 4, weight=2),
        node("ClusterQueue", "light", "all", 4, weight=1),
        node("ClusterQueue", "small", "all", 0, weight=1),
    )
    demands = {"idle": 3, "heavy": 100, "light": 100, "small": 1}
    # 20 - 3 - 4 - 4 = 9 are left: small wants 1 of its 9/4, and the others get 8 in proportion 2 : 1.
    assert entitlements(root, GPU, demands) == {
        "idle": 3,
        "heavy": pytest.approx(4 + 16 / 3),
        "light": pytest.approx(4 + 8 / 3),
        "small": pytest.approx(1),
    }


def test_weights_count_at_each_level_and_weight_0_gets_the_rest():
    inner = node("Cohort", "inner", "all", weight=3)
    inner.children.extend(node("ClusterQueue", name, "inner") for name in ("a", "b"))
    root = tree(inner, node("ClusterQueue", "c", "all"), node("ClusterQueue", "z", "all", weight=0), nominal=8)
    assert entitlements(root, GPU, dict.fromkeys("abcz", 100.0)) == {"a": 3, "b": 3, "c": 2, "z": 0}
    assert entitlements(root, GPU, {"a": 1, "b": 0, "c": 1, "z": 100.0}) == {"a": 1, "b": 0, "c": 1, "z": 6}


def test_borrowing_limits_and_queues_without_a_cohort_bound_entitlements():
    root = tree(node("ClusterQueue", "a", "all", 2, limit=1), node("ClusterQueue", "b", "all", 10))
    assert entitlements(root, GPU, {"a": 9}) == {"a": 3, "b": 0}
    assert entitlements(node("ClusterQueue", "alone", "", 5), GPU, {"alone": 9}) == {"alone": 5}


queues = st.tuples(st.integers(0, 20), st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.integers(0, 60), st.booleans())


@given(st.lists(queues, min_size=1, max_size=6), st.integers(0, 20))
def test_entitlements_use_all_that_is_wanted_and_keep_own_quota(found: list[tuple[int, float, int, bool]], own: int):
    inner = node("Cohort", "inner", "all", weight=2)
    outer = []
    for number, (nominal, weight, _, below) in enumerate(found):
        one = node("ClusterQueue", str(number), "inner" if below else "all", nominal, weight)
        (inner.children if below else outer).append(one)
    root = tree(inner, *outer, nominal=own)
    demands = {str(number): float(each[2]) for number, each in enumerate(found)}
    entitled = entitlements(root, GPU, demands)
    capacity = own + sum(each[0] for each in found)
    assert sum(entitled.values()) == pytest.approx(min(capacity, sum(demands.values())))
    for number, (nominal, _, wanted, _) in enumerate(found):
        assert min(nominal, wanted) - 1e-6 <= entitled[str(number)] <= wanted + 1e-6


async def create(store: Store, kind: str, name: str, *, namespace: str = "", **spec: Any) -> None:
    await create_objects(store, manifest(kind, name, namespace=namespace, spec=spec))


def quota(gpus: int, **limits: int) -> list[dict[str, Any]]:
    return [resource_group(h100={GPU: {"nominalQuota": gpus, **limits}})]


async def runs(
    store: Store, epoch: int, name: str, queue: str, gpus: int, *spells: tuple[float, float], created: float,
    left: float | None = None, reason: str = "",
) -> None:  # fmt: skip
    """Write a workload that held quota in these hours since NOW."""
    workload = Workload(name, "a", name, queue, 0, NOW + created * HOUR, (PodSet("main", 1, {GPU: gpus}),))
    holds = Admission(queue, (PodSetAssignment("main", {GPU: "h100"}, {GPU: gpus}, 1),))
    state = State.PENDING if left is None else State.FINISHED
    finished = None if left is None else NOW + left * HOUR
    record = WorkloadRecord(workload, state, NOW + created * HOUR, reason=reason, finished_at=finished)
    await store.commit(Changes(workloads=(record,)), epoch=epoch)
    for begins, ends in spells:
        await store.commit(Changes(opened=(Opened(workload, holds, NOW + begins * HOUR),)), epoch=epoch)
        await store.commit(Changes(closed=(Closed(name, NOW + ends * HOUR, "Preempted"),)), epoch=epoch)


def gpu_hours(share: Share) -> list[float]:
    found = share.nominal, share.demand, share.entitled, share.received, share.borrowed, share.lent
    return [round(each / HOUR, 6) for each in found]


async def test_what_was_lent_is_what_was_borrowed_and_waiting_is_demand(store: Store, clock: Clock):
    clock.now = NOW
    epoch = await store.lead("test")
    await create(store, "Cohort", "all", resourceGroups=quota(2))
    for name, gpus in (("ml", 4), ("vision", 4), ("speech", 6)):
        await create(store, "ClusterQueue", name, cohortName="all", resourceGroups=quota(gpus))
        await create(store, "LocalQueue", name, namespace="a", clusterQueue=name)
    await runs(store, epoch, "big", "ml", 9, (1, 3), created=0.5, left=3)
    await runs(store, epoch, "own", "vision", 3, (1, 2), (2.5, 3), created=1, left=3)
    await runs(store, epoch, "stuck", "speech", 100, created=0, reason="ExceedsMaxQuota")
    clock.now = NOW + 4 * HOUR
    found = await store.fairness(start=NOW, end=NOW + 4 * HOUR)
    assert (found.start, found.end) == (NOW, NOW + 4 * HOUR)
    ml, vision, speech = (found.shares[name, GPU] for name in ("ml", "vision", "speech"))
    # big waited for half an hour and ran for two hours; own waited for half an hour between its admissions.
    assert gpu_hours(ml) == [16, 4.5 + 18, 4.5 + 18, 18, 10, 0]
    assert gpu_hours(vision)[:5] == [16, 6, 6, 4.5, 0]
    assert gpu_hours(speech)[:5] == [24, 0, 0, 0, 0]
    # Each hour 5 are borrowed: 2 of the Cohort, 3 of vision, with 1 and 2.5 idle, and of speech, with 6.
    assert {loan: round(each / HOUR, 6) for loan, each in found.loans.items()} == {
        LoanKey("Cohort", "all", "ml", "h100", GPU): 4,
        LoanKey("ClusterQueue", "vision", "ml", "h100", GPU): round(3 * 1 / 7 + 3 * 2.5 / 8.5, 6),
        LoanKey("ClusterQueue", "speech", "ml", "h100", GPU): round(3 * 6 / 7 + 3 * 6 / 8.5, 6),
    }
    assert sum(found.loans.values()) == pytest.approx(ml.borrowed)
    assert vision.lent + speech.lent == pytest.approx(ml.borrowed - 4 * HOUR)


async def test_the_largest_lenders_and_borrowers_are_named_and_the_others_summed_up(store: Store, clock: Clock):
    clock.now = NOW
    epoch = await store.lead("test")
    found = [
        manifest("ClusterQueue", f"{kind}-{n:02}", spec={"cohortName": cohort, "resourceGroups": quota(gpus)})
        for n in range(60)
        for kind, cohort, gpus in (("lends", "all", 10 + n), ("borrows", "some", 1))
    ]
    await create_objects(store, manifest("Cohort", "some", spec={"parentName": "all"}), *found)
    opened = []
    for n in range(60):
        name, gpus = f"borrows-{n:02}", 3 + n
        workload = Workload(name, "a", name, name, 0, NOW, (PodSet("main", 1, {GPU: gpus}),))
        # Half of the hour: each leaves half a GPU idle, which the others borrow.
        holds = Admission(name, (PodSetAssignment("main", {GPU: "h100"}, {GPU: gpus}, 1),))
        await store.commit(Changes(workloads=(WorkloadRecord(workload, State.ADMITTED, NOW),)), epoch=epoch)
        opened.append(Opened(workload, holds, NOW + HOUR / 2))
    await store.commit(Changes(opened=tuple(opened)), epoch=epoch)
    clock.now = NOW + HOUR
    whole = await store.fairness(start=NOW, end=NOW + HOUR)
    named = {loan.lender for loan in whole.loans} - {""}, {loan.borrower for loan in whole.loans} - {""}
    assert named == ({f"lends-{n:02}" for n in range(10, 60)}, {f"borrows-{n:02}" for n in range(10, 60)})
    assert len(whole.loans) == 51 * 51
    one = await store.fairness(start=NOW, end=NOW + HOUR, cohort="some", including="borrows-03")
    assert {name for name, _ in one.shares} == {f"borrows-{n:02}" for n in range(60)}
    # Members of the Cohort are named first. Those that borrow less lend more, as nobody borrows of itself.
    assert {loan.lender for loan in one.loans} - {""} == {f"borrows-{n:02}" for n in range(50)}
    assert {loan.borrower for loan in one.loans} == {"", "borrows-03", *named[1]}
    for report in (whole, one):
        of_lender, of_borrower = defaultdict[str, float](float), defaultdict[str, float](float)
        for loan, amount in report.loans.items():
            assert loan.lender != loan.borrower or not loan.lender
            of_lender[loan.lender] += amount
            of_borrower[loan.borrower] += amount
        for sums, field in ((of_lender, "lent"), (of_borrower, "borrowed")):
            for name in sums.keys() - {""}:
                assert sums[name] == pytest.approx(getattr(whole.shares[name, GPU], field))
            shares = [share for (name, _), share in whole.shares.items() if name not in sums]
            assert sums[""] == pytest.approx(sum(getattr(share, field) for share in shares)), field


async def test_quota_counts_as_it_was_and_lowered_quota_was_lent_by_nobody(store: Store, clock: Clock):
    clock.now = NOW
    epoch = await store.lead("test")
    await create(store, "ClusterQueue", "alone", resourceGroups=quota(8))
    await runs(store, epoch, "one", "alone", 6, (0, 4), created=0, left=4)
    clock.now = NOW + 2 * HOUR
    before = await store.queues.get("ClusterQueue", "alone")
    assert before is not None
    manifest = {"apiVersion": "sluice.dev/v1", "kind": "ClusterQueue", "metadata": {"name": "alone"}}
    await store.queues.replace(parse_manifest({**manifest, "spec": {"resourceGroups": quota(2)}}), author=Author("ada"))
    clock.now = NOW + 4 * HOUR
    found = await store.fairness(start=NOW, end=NOW + 4 * HOUR)
    assert gpu_hours(found.shares["alone", GPU]) == [2 * 8 + 2 * 2, 24, 2 * 6 + 2 * 2, 24, 8, 0]
    assert {loan: each / HOUR for loan, each in found.loans.items()} == {LoanKey("", "", "alone", "h100", GPU): 8}


async def test_others_lend_what_their_limits_permit_and_weights_are_those_of_the_objects(store: Store, clock: Clock):
    clock.now = NOW
    epoch = await store.lead("test")
    for name, gpus, limits in (("ml", 2, {}), ("kept", 4, {"lendingLimit": 1}), ("free", 3, {}), ("gone", 8, {})):
        await create(store, "ClusterQueue", name, cohortName="all", resourceGroups=quota(gpus, **limits))
    for name, gpus, weight in (("heavy", 0, 3), ("light", 0, 1), ("idle", 8, 1)):
        weights = {"fairSharing": {"weight": str(weight)}}
        await create(store, "ClusterQueue", name, cohortName="other", resourceGroups=quota(gpus), **weights)
        await create(store, "LocalQueue", name, namespace="a", clusterQueue=name)
        if not gpus:
            await runs(store, epoch, name, name, 100, created=0, reason="WaitingForQuota")
    await store.queues.delete("ClusterQueue", "gone", author=Author("ada"))
    await runs(store, epoch, "big", "ml", 4, (1, 1.5), created=1, left=1.5)
    clock.now = NOW + 2 * HOUR
    found = await store.fairness(start=NOW, end=NOW + 2 * HOUR)
    # On the average of the hour, ml uses 1 of its own, and borrows 1, but not of itself; kept lends 1 of 4 at most.
    assert {loan.lender: each / HOUR for loan, each in found.loans.items()} == {"kept": 0.25, "free": 0.75}
    assert [found.shares[name, GPU].entitled / HOUR for name in ("heavy", "light")] == [2 * 6, 2 * 2]


async def test_parts_of_a_time_add_up_to_the_whole(store: Store, clock: Clock):
    clock.now = NOW
    epoch = await store.lead("test")
    for name in ("a", "b"):
        await create(store, "ClusterQueue", name, cohortName="all", resourceGroups=quota(4))
    await runs(store, epoch, "x", "a", 6, (0.25, 3.75), created=0, left=3.75)
    clock.now = NOW + 4 * HOUR
    whole = await store.fairness(start=NOW, end=NOW + 4 * HOUR)
    parts = [await store.fairness(start=a, end=b) for a, b in pairwise(NOW + hour * HOUR for hour in range(5))]
    for name in ("demand", "entitled", "received", "borrowed"):
        sums = (getattr(part.shares["a", GPU], name) for part in parts)
        assert sum(sums) == pytest.approx(getattr(whole.shares["a", GPU], name)), name
