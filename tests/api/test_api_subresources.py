"""Subresources of one object: explain, pendingworkloads, history and rollback; and the impact of dry runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from api_client import PREFIX, Client, on_both_databases
from one_queue import DRY, MERGE, job, one_queue, serving, submitted
from queue_objects import cluster_queue, cohort, flavor, local_queue, manifest
from workload_records import NOW, NOW_TEXT, commit

from admission.api.documents.workload_names import workload_name
from admission.api.resources.explanation_text import ExplainedWorkload, paragraphs
from admission.api.resources.start_estimates import NoEstimate, StartEstimate
from admission.cli.commands.history import workload_history_lines
from admission.engine import Explanation, PreemptionHint
from admission.model import answers
from admission.model.terms import Terms, parse_after
from admission.store.records import Changes, CheckRecord, LastEviction, State, Transition, WorkloadRecord
from admission.store.store import Store


@pytest.fixture
async def api(store: Store, clock: Callable[[], float]) -> AsyncIterator[Client]:
    """A flavor, the ClusterQueue `one` with 4 CPUs, and the LocalQueue `main` of namespace `a`."""
    async with one_queue(store, clock) as client:
        yield client


def names(found: list[dict[str, Any]]) -> list[str]:
    return [item["name"] for item in found]


# ---------------------------------------------------------------------- explain and pendingworkloads


@on_both_databases
async def test_explain_shows_requested_and_free_quota_and_workloads_ahead(api: Client, store: Store) -> None:
    await submitted(
        store,
        job("runs", state=State.ADMITTED, admitted_at=NOW),
        job("first", cpu=1000, age=10),
        job("second", cpu=1000),
    )
    answer = await api.get(f"{PREFIX}/namespaces/a/workloads/second/explain")
    assert answer.status == 200
    found = answer.body
    assert (found["kind"], found["state"], found["reason"]) == ("WorkloadExplanation", "Pending", "WaitingForQuota")
    assert (found["positionInClusterQueue"], found["positionInLocalQueue"]) == (2, 2)
    assert found["aheadFirst"] == ["a/first"]
    (lack,) = found["lacks"]
    assert {
        name: lack[name] for name in ("flavor", "resource", "asked", "free", "borrowable", "most", "refusedBy")
    } == {
        "flavor": "default",
        "resource": "cpu",
        "asked": "3",
        "free": "2500m",
        "borrowable": "0",
        "most": "4",
        "refusedBy": "ClusterQueue one: nominalQuota",
    }
    assert lack["hint"] == "0.5 CPU (default) must become free"
    assert "preempts no workloads" in found["prospects"][0]["hint"]
    smaller = "if each pod of pod set main asked for 0.833 instead of 1 CPU"
    assert found["sentences"] == [
        "Job a/second needs 3 CPU (default): 2.5 of 4 free; position 2 of 2.",
        "Ahead: a/first. In use by a/runs (1.5 CPU).",
        f"It could start now with 2 instead of 3 pods in pod set main, or {smaller}.",
    ]
    assert found["standing"] == (
        "second: position 2 of 2 in ClusterQueue one, 2 of 2 in LocalQueue main; needs 3 CPU (default): 2.5 of 4 free."
    )
    assert found["details"][0].endswith("; position 2 of 2 in LocalQueue main.")
    assert "  CPU (default): 0.5 too little by the nominalQuota of ClusterQueue one" in found["details"][2].splitlines()


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("OnHold", "alice holds it"),
        ("Misconfigured", 'WorkloadPriorityClass "none" does not exist: create it, or correct the label'),
        ("Deactivated", "The workload is deactivated"),
    ],
)
async def test_explain_shows_why_a_workload_is_kept_out_of_the_queue(
    api: Client, store: Store, reason: str, message: str
) -> None:
    await submitted(store, job("barred", reason=reason, message=message, active=reason != "Deactivated"))
    body = (await api.get(f"{PREFIX}/namespaces/a/workloads/barred/explain")).body
    assert (body["state"], body["reason"], body["message"]) == ("Pending", reason, message)


async def test_explain_shows_the_state_of_admitted_finished_and_on_hold_workloads(api: Client, store: Store) -> None:
    await submitted(
        store,
        job("runs", state=State.ADMITTED, admitted_at=NOW, reason="Admitted"),
        job("over", state=State.FINISHED, finished_at=NOW, outcome="Succeeded", reason="Succeeded"),
        job("held", reason="OnHold", message="alice holds it"),
    )
    states = {}
    for name in ("runs", "over", "held"):
        body = (await api.get(f"{PREFIX}/namespaces/a/workloads/{name}/explain")).body
        states[name] = body["state"], body["reason"]
    assert states["runs"] == ("Admitted", "Admitted")
    assert states["over"] == ("Finished", "Succeeded")
    assert states["held"] == ("Pending", "OnHold")
    missing = await api.get(f"{PREFIX}/namespaces/a/workloads/none/explain")
    assert missing.status == 404
    assert missing.body["message"].startswith('workloads.sluice.dev "none" not found in namespace "a"; check the')


async def test_explain_names_what_a_workload_starts_after_and_what_waits_for_it(api: Client, store: Store) -> None:
    def after(name: str, text: str) -> WorkloadRecord:
        made = job(name)
        return replace(made, workload=replace(made.workload, terms=Terms(after=parse_after(text))))

    await submitted(
        store,
        job("prep", state=State.FINISHED, finished_at=NOW, outcome="Failed", reason="Failed"),
        after("train", "ok(prep),any(jobset/clean)"),
        after("report", "any(job/train)"),
        after("other", "ok(jobset/train)"),
    )
    found = (await api.get(f"{PREFIX}/namespaces/a/workloads/train/explain")).body
    failed, missing = found["waitsFor"]
    assert (failed["object"], failed["condition"], failed["state"], failed["outcome"]) == (
        "prep", "Succeeded", "finished", "Failed"
    )  # fmt: skip
    assert missing == {"object": "jobset/clean", "condition": "Ended"}
    assert [(each["object"], each["condition"]) for each in found["waitedForBy"]] == [("report", "Ended")]
    own = {key: value for key, value in found.items() if key not in ("apiVersion", "kind", "metadata")}
    answers.WorkloadExplanation.model_validate(own)
    of_prep = (await api.get(f"{PREFIX}/namespaces/a/workloads/prep/explain")).body
    assert [each["object"] for each in of_prep["waitedForBy"]] == ["train"]
    assert "waitsFor" not in of_prep


async def test_explain_says_since_when_a_workload_may_run_not_since_when_it_holds_quota(
    api: Client, store: Store, clock: Callable[[], float]
) -> None:
    now = clock()
    await submitted(
        store, job("runs", state=State.ADMITTED, admitted_at=now - 86400, cleared_at=now, reason="Admitted")
    )
    sentences = (await api.get(f"{PREFIX}/namespaces/a/workloads/runs/explain")).body["sentences"]
    assert sentences[0] == "Job a/runs does not wait: it is admitted, 0 s ago."


@pytest.mark.parametrize(("seconds", "number"), [(60, 2), (720, 3)])
async def test_explain_says_what_keeps_pods_from_ending_if_a_stop_takes_long(
    api: Client, store: Store, clock: Callable[[], float], seconds: float, number: int
) -> None:
    stopped = LastEviction("Preempted", "It was preempted.", clock() - seconds)
    given = {"state": State.EVICTING, "admitted_at": NOW, "evict_reason": "Preempted", "eviction": stopped}
    await submitted(store, job("stuck", reason="Preempted", message=stopped.message, **given))
    sentences = (await api.get(f"{PREFIX}/namespaces/a/workloads/stuck/explain")).body["sentences"]
    assert len(sentences) == number
    if number == 3:
        assert sentences[-1].startswith("It was evicted 12 min ago, and pods of it have not ended. `kubectl get pods`")


async def test_explain_mentions_the_last_eviction_exactly_once(api: Client, store: Store) -> None:
    """The sentence is about quota: during its admission checks a workload holds quota, but has never run."""
    said = "It was deactivated because the admission check gpu rejected it."
    eviction = LastEviction("DeactivatedDueToAdmissionCheck", said, NOW)
    out = job("out", reason="Deactivated", message=said, eviction=eviction, active=False)
    back = job("back", reason="PendingEvaluation", message="It is so.", eviction=eviction)
    await submitted(store, out, back)
    for name, times in (("out", 0), ("back", 1)):
        sentences = (await api.get(f"{PREFIX}/namespaces/a/workloads/{name}/explain")).body["sentences"]
        assert sum(f"It held quota before, and lost it: {said}" == each for each in sentences) == times
        assert sum(said in each for each in sentences) == 1


def test_explanation_of_a_preemption_has_no_uid_and_no_paths() -> None:
    said = (
        "Preempted to accommodate workload a/b (UID: 1-2) due to prioritization in the ClusterQueue; preemptor path: "
        "/ai/v.1; preemptee path: /ai/v.1. It queues again by itself."
    )
    waits = ExplainedWorkload("Job a/waits", "main", NOW, "WaitingForQuota", "It waits.", evicted=said)
    sentences, _ = paragraphs(waits, Explanation("Pending"), now=NOW)
    assert (
        "It held quota before, and lost it: Preempted to accommodate workload a/b due to prioritization in the "
        "ClusterQueue. It queues again by itself."
    ) in sentences


def test_explanation_says_only_once_what_is_the_same_for_all_flavors() -> None:
    never = (PreemptionHint("Never", "Never", "cpu", name, 1000) for name in ("default", "other"))
    waits = ExplainedWorkload("Job a/waits", "main", NOW, "WaitingForQuota", "It waits.")
    found = Explanation("Pending", preemption_hints=tuple(never))
    sentences, details = paragraphs(waits, found, now=NOW, remedies=["like so", "like so", "so", "or so"])
    assert sum(each.count("its ClusterQueue preempts no workloads") for each in details) == 1
    assert (sentences[-1], details[-1]) == ("It could start now like so, or so.", "It could also start now\n  or so")


async def test_explain_names_an_admission_check_that_nothing_answers(api: Client, store: Store) -> None:
    """A workload would wait forever for a controller of Kueue, and its check has no message."""
    for name, controller in (("clusters", "kueue.x-k8s.io/multikueue"), ("budget", "example.com/budget")):
        spec = {"controllerName": controller}
        await api.post(f"{PREFIX}/admissionchecks", manifest("AdmissionCheck", name, spec=spec))
    waits = job("waits", state=State.ADMITTED, admitted_at=NOW, checks_pending=True, reason="Admitted")
    checks = tuple(CheckRecord(waits.workload.uid, name, "Pending", NOW) for name in ("budget", "clusters"))
    epoch = await store.lead("tests")
    await commit(store, epoch, waits)
    await store.commit(Changes(checks=checks), epoch=epoch)
    sentences = (await api.get(f"{PREFIX}/namespaces/a/workloads/waits/explain")).body["sentences"]
    forever = "kueue.x-k8s.io/multikueue is a part of Kueue and does not answer Sluice; workloads would wait forever"
    assert sentences[-1].splitlines() == [
        "Admission checks that are not ready:",
        "  budget: Pending: example.com/budget has not answered for any workload yet",
        f"  clusters: Pending: {forever}",
    ]


async def test_estimated_start_is_shown_in_status_explain_and_pending_workloads(
    store: Store, clock: Callable[[], float]
) -> None:
    told, later = StartEstimate(NOW, NOW + 600, NOW + 7800, 0.9), "No estimate yet: it is new."
    early_one = job("early", age=3)
    async with serving(
        store, clock, estimate_of=lambda uid: told if uid == early_one.workload.uid else NoEstimate(later)
    ) as api:
        await api.post(f"{PREFIX}/resourceflavors", flavor("default"))
        await api.post(f"{PREFIX}/clusterqueues", cluster_queue("one"))
        await api.post(f"{PREFIX}/namespaces/a/localqueues", local_queue("main", "a", "one"))
        await submitted(store, early_one, job("late", age=1))
        early = (await api.get(f"{PREFIX}/namespaces/a/workloads/early")).body["status"]["estimatedStart"]
        assert early == {
            "p50": "2025-06-15T15:16:40Z", "p90": "2025-06-15T17:16:40Z", "madeAt": NOW_TEXT, "shareHeld": 0.9,
        }  # fmt: skip
        explained = (await api.get(f"{PREFIX}/namespaces/a/workloads/early/explain")).body
        assert explained["estimatedStart"] == early
        text = "probably in 10 min, nine of ten within 2 h 10 min (90% of past estimates held)"
        assert text in explained["standing"]
        assert text in explained["sentences"][0]
        explained = (await api.get(f"{PREFIX}/namespaces/a/workloads/late/explain")).body
        assert explained["noEstimate"] == later
        for queue in ("clusterqueues/one", "namespaces/a/localqueues/main"):
            waiting = (await api.get(f"{PREFIX}/{queue}/pendingworkloads")).body["items"]
            assert [item.get("estimatedStart") for item in waiting] == [early, None]


async def test_pending_workloads_are_listed_in_queue_order_and_paginated(api: Client, store: Store) -> None:
    await api.post(f"{PREFIX}/namespaces/b/localqueues", local_queue("other", "b", "one"))
    await submitted(
        store,
        job("late", age=1),
        job("early", age=3),
        job("urgent", priority=9),
        job("elsewhere", age=2, namespace="b", queue="other"),
    )
    path = f"{PREFIX}/clusterqueues/one/pendingworkloads"
    whole = (await api.get(path)).body
    listed = [
        (item["metadata"]["ownerReferences"][0]["name"], item["positionInClusterQueue"], item["positionInLocalQueue"])
        for item in whole["items"]
    ]
    assert listed == [("urgent", 1, 1), ("early", 2, 2), ("elsewhere", 3, 1), ("late", 4, 3)]
    early = (await api.get(f"{PREFIX}/namespaces/a/workloads/early")).body
    assert whole["items"][1]["queuedAt"] == early["status"]["queuedAt"]
    assert whole["items"][0]["metadata"]["name"] == workload_name(job("urgent").workload)
    page = (await api.get(f"{path}?limit=1&offset=2")).body
    assert [item["positionInClusterQueue"] for item in page["items"]] == [3]
    assert page["metadata"] == {"remainingItemCount": 1}
    own = (await api.get(f"{PREFIX}/namespaces/b/localqueues/other/pendingworkloads")).body
    assert [item["localQueueName"] for item in own["items"]] == ["other"]
    assert (await api.get(f"{PREFIX}/clusterqueues/none/pendingworkloads")).status == 404
    assert (await api.get(f"{path}?limit=some")).status == 400


# ---------------------------------------------------------------------- histories


@on_both_databases
async def test_workload_history_shows_its_transitions_waiting_times_and_admissions(api: Client, store: Store) -> None:
    runs = job("runs", state=State.ADMITTED, admitted_at=NOW)
    await submitted(store, runs)
    story = (
        Transition(runs.workload.uid, NOW - 90, State.PENDING, "WaitingForQuota", "cpu is short"),
        Transition(runs.workload.uid, NOW - 60, State.PENDING, "OnHold", "alice holds it"),
        Transition(runs.workload.uid, NOW, State.ADMITTED, "Admitted", "It holds 3 pods."),
    )
    await store.commit(Changes(transitions=story), epoch=await store.lead("tests"))
    found = (await api.get(f"{PREFIX}/namespaces/a/workloads/runs/history")).body
    assert found["kind"] == "WorkloadHistory"
    assert [tuple(item.values()) for item in found["items"]] == [
        ("2025-06-15T15:05:10.000000Z", "pending", "WaitingForQuota", "cpu is short"),
        ("2025-06-15T15:05:40.000000Z", "pending", "OnHold", "alice holds it"),
        ("2025-06-15T15:06:40.000000Z", "admitted", "Admitted", "It holds 3 pods."),
    ]
    assert found["waited"] == [{"reason": "WaitingForQuota", "seconds": 30.0}, {"reason": "OnHold", "seconds": 60.0}]
    assert found["admissions"] == [
        {
            "from": "2025-06-15T15:06:40.000000Z",
            "clusterQueue": "one",
            "podSet": "main",
            "count": 3,
            "flavor": "default",
            "resource": "cpu",
            "amount": "1500m",
        }
    ]


async def test_workload_history_folds_admissions_that_end_with_evictions(api: Client, store: Store) -> None:
    again = job("again")
    await submitted(store, again)
    uid = again.workload.uid
    story = []
    for number in range(6):
        said = f"Preempted to accommodate a workload (UID: p{number % 2}) due to prioritization in the ClusterQueue"
        story += [
            Transition(uid, NOW + number, State.ADMITTED, "QuotaReserved", ""),
            Transition(uid, NOW + number, State.ADMITTED, "Admitted", ""),
            Transition(uid, NOW + number, State.EVICTING, "Preempted", said),
            Transition(uid, NOW + number, State.PENDING, "Requeued", ""),
        ]
    story.append(Transition(uid, NOW + 6, State.ADMITTED, "Admitted", ""))
    epoch = await store.lead("tests")
    await store.commit(Changes(transitions=tuple(story[:13])), epoch=epoch)
    address = f"{PREFIX}/namespaces/a/workloads/again/history"
    assert (await api.get(address)).body["folds"] == [], "three rounds are shown as they were"
    await store.commit(Changes(transitions=tuple(story[13:])), epoch=epoch)
    found = (await api.get(address)).body
    assert found["folds"] == [{"first": 4, "last": 19, "rounds": 4, "preemptors": 2}]
    lines = workload_history_lines(answers.WorkloadHistory.model_validate(found, extra="ignore"))
    assert len(lines) == 25 - 16 + 1
    assert "admitted and evicted 4 times, preempted for 2 different workloads" in lines[4]


@on_both_databases
async def test_queue_history_lists_each_version_with_user_reason_and_diff(api: Client) -> None:
    changed = cluster_queue("one", cpu="8", stopPolicy="Hold")
    changed["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    assert (await api.put(f"{PREFIX}/clusterqueues/one?reason=more+nodes", changed)).status == 200
    assert (await api.delete(f"{PREFIX}/clusterqueues/none")).status == 404
    found = (await api.get(f"{PREFIX}/clusterqueues/one/history")).body
    assert [(item["operation"], item["user"], item["reason"]) for item in found["items"]] == [
        ("replace", "sluice:admin", "more nodes"),
        ("create", "sluice:admin", ""),
    ]
    assert found["items"][0]["diff"] == [
        {
            "op": "replace",
            "path": "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
            "before": "4",
            "after": "8",
        },
        {"op": "replace", "path": "spec.stopPolicy", "before": "None", "after": "Hold"},
    ]
    page = (await api.get(f"{PREFIX}/clusterqueues/one/history?limit=1")).body
    rest = await api.get(f"{PREFIX}/clusterqueues/one/history?limit=1&continue={page['metadata']['continue']}")
    assert [item["operation"] for item in (*page["items"], *rest.body["items"])] == ["replace", "create"]
    assert (await api.get(f"{PREFIX}/clusterqueues/none/history")).status == 404


@pytest.mark.costly
@on_both_databases
async def test_rollback_creates_a_new_version_and_restores_deleted_objects(api: Client) -> None:
    await api.put(f"{PREFIX}/clusterqueues/one", cluster_queue("one", cpu="8"))
    history = f"{PREFIX}/clusterqueues/one/history"
    first = (await api.get(history)).body["items"][-1]["revision"]
    back = await api.post(f"{PREFIX}/clusterqueues/one/rollback?reason=oops", {"kind": "Rollback", "revision": first})
    assert back.status == 200
    assert back.body["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == "4"
    assert back.body["metadata"]["generation"] == 3
    newest = (await api.get(history)).body["items"][0]
    assert (newest["operation"], newest["reason"]) == ("replace", "oops")

    assert (await api.post(f"{PREFIX}/cohorts", cohort("gone"))).status == 201
    created = (await api.get(f"{PREFIX}/cohorts/gone/history")).body["items"][0]["revision"]
    await api.delete(f"{PREFIX}/cohorts/gone")
    deleted = (await api.get(f"{PREFIX}/cohorts/gone/history")).body["items"][0]
    wrong = await api.post(f"{PREFIX}/cohorts/gone/rollback", {"revision": deleted["revision"]})
    assert (wrong.status, wrong.body["message"]) == (
        400,
        f'cohort "gone" has no revision {deleted["revision"]} to go back to; there are, newest first: {created}',
    )
    tried = await api.post(f"{PREFIX}/cohorts/gone/rollback?dryRun=All", {"revision": created})
    assert tried.status == 200
    assert (await api.get(f"{PREFIX}/cohorts/gone")).status == 404
    assert (await api.post(f"{PREFIX}/cohorts/gone/rollback", {"revision": created})).status == 200
    assert (await api.get(f"{PREFIX}/cohorts/gone")).status == 200


@pytest.mark.costly
async def test_rollback_to_an_unknown_revision_names_the_newest_revisions(api: Client) -> None:
    for cpu in range(10, 22):
        await api.put(f"{PREFIX}/clusterqueues/one", cluster_queue("one", cpu=str(cpu)))
    history = (await api.get(f"{PREFIX}/clusterqueues/one/history")).body["items"]
    assert len(history) == 13
    answer = await api.post(f"{PREFIX}/clusterqueues/one/rollback", {"revision": "999999"})
    newest = ", ".join(version["revision"] for version in history[:10])
    assert answer.status == 400
    assert answer.body["message"].endswith(f"; there are, newest first: {newest} and 3 more")


@pytest.mark.parametrize("body", [{}, {"revision": 3}, {"revision": "x"}, {"revision": None}])
async def test_rollback_with_a_missing_or_malformed_revision_is_refused(api: Client, body: dict[str, Any]) -> None:
    answer = await api.post(f"{PREFIX}/clusterqueues/one/rollback", body)
    assert answer.status == 400
    assert answer.body["message"].startswith("revision: must be a revision of the history")


# ---------------------------------------------------------------------- impact of dry runs


@on_both_databases
async def test_dry_run_shows_workloads_that_would_be_admitted_and_writes_nothing(api: Client, store: Store) -> None:
    await submitted(store, job("fits", age=2), job("small", cpu=1000, age=1), job("large", cpu=2000))
    answer = await api.send("PUT", f"{PREFIX}/clusterqueues/one", cluster_queue("one", cpu="7"), params=DRY)
    impact = answer.body["status"]["impact"]
    # Workloads that would be admitted without the change are not part of its impact.
    assert names(impact["admitted"]) == ["small"]
    assert impact["counts"] == {"admitted": 1, "evicted": 0, "impossible": 0}
    assert "would admit 1 workload: a/small" in str(answer.headers.getall("Warning"))
    stored = (await api.get(f"{PREFIX}/clusterqueues/one")).body
    assert stored["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == "4"
    assert "impact" not in stored["status"]


async def test_dry_run_of_quota_below_usage_shows_excess_and_impossible_workloads(api: Client, store: Store) -> None:
    await submitted(store, job("runs", state=State.ADMITTED, admitted_at=NOW), job("waits", cpu=1000))
    answer = await api.send("PUT", f"{PREFIX}/clusterqueues/one", cluster_queue("one", cpu="1"), params=DRY)
    impact = answer.body["status"]["impact"]
    assert impact["overQuota"] == [{"clusterQueue": "one", "flavor": "default", "resource": "cpu", "by": "500m"}]
    assert [(item["name"], item["reason"]) for item in impact["impossible"]] == [("waits", "ExceedsMaxQuota")]
    assert impact["evicted"] == []


async def test_quota_below_usage_is_a_warning(api: Client, store: Store) -> None:
    await submitted(store, job("runs", state=State.ADMITTED, admitted_at=NOW))

    async def told(**spec: Any) -> list[str]:
        answer = await api.put(f"{PREFIX}/clusterqueues/one", cluster_queue("one", **spec))
        return [text.removeprefix('299 - "').removesuffix('"') for text in answer.headers.getall("Warning", [])]

    beyond = "uses 500m of cpu in flavor default more than it may; running workloads stay"
    assert await told(cpu="1") == [f"ClusterQueue one {beyond}"]
    assert await told(cpu="1", cohortName="all") == [f"Cohort all {beyond}"], "it borrows what nobody has"
    converges = {"overQuota": {"evictAfterSeconds": 60}}
    assert await told(cpu="1", **converges) == [
        f"ClusterQueue one {beyond}, except in ClusterQueues with spec.overQuota"
    ]
    assert await told(cpu="1500m") == []


async def test_dry_run_of_hold_and_drain_shows_workloads_that_would_be_evicted(api: Client, store: Store) -> None:
    await submitted(store, job("runs", state=State.ADMITTED, admitted_at=NOW))
    answer = await api.send(
        "PATCH",
        f"{PREFIX}/clusterqueues/one",
        {"spec": {"stopPolicy": "HoldAndDrain"}},
        params=DRY,
        headers=MERGE,
    )
    evicted = answer.body["status"]["impact"]["evicted"]
    assert [(item["name"], item["reason"]) for item in evicted] == [("runs", "ClusterQueueStopped")]


async def test_dry_run_of_a_deletion_shows_its_impact_and_deletes_nothing(api: Client, store: Store) -> None:
    await submitted(store, job("runs", cpu=1000, state=State.ADMITTED, admitted_at=NOW), job("waits", cpu=1000))
    answer = await api.delete(f"{PREFIX}/namespaces/a/localqueues/main?dryRun=All")
    assert answer.status == 200, answer.body
    assert answer.body["details"]["impact"]["counts"] == {"admitted": 0, "evicted": 0, "impossible": 1}
    assert names(answer.body["details"]["impact"]["impossible"]) == ["waits"]
    assert (await api.get(f"{PREFIX}/namespaces/a/localqueues/main")).status == 200


async def test_dry_run_of_an_order_shows_its_impact_and_writes_nothing(api: Client, store: Store) -> None:
    runs, waits = job("runs", cpu=1000, state=State.ADMITTED, admitted_at=NOW), job("waits", cpu=1000)
    await submitted(store, runs, waits)
    answer = await api.send(
        "PATCH", f"{PREFIX}/namespaces/a/workloads/runs", {"spec": {"hold": True}}, params=DRY, headers=MERGE
    )
    impact = answer.body["status"]["impact"]
    assert [(item["name"], item["reason"]) for item in impact["evicted"]] == [("runs", "OnHold")]
    assert (await api.get(f"{PREFIX}/namespaces/a/workloads/runs")).body["spec"]["hold"] is False
