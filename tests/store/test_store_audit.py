"""Audit log of queue objects: content of records, reasons, filters and pages."""

from __future__ import annotations

import pytest
from store_examples import cluster_queue, cohort, flavor, local_queue

from admission.store.audit_log import Author
from admission.store.errors import AlreadyExists, Conflict, NotFound
from admission.store.store import Store
from tests.conftest import Clock

ADA = Author("ada", ("admins", "staff"), source="192.0.2.7", verb="patch", reason="more money")


async def test_audit_record_has_author_source_verb_reason_and_both_versions(store: Store, clock: Clock):
    await store.queues.create(cluster_queue(cpu="10"), author=Author("bob"))
    clock.advance(60)
    written = await store.queues.replace(cluster_queue(cpu="20", labels={"a": "b"}), author=ADA)
    clock.advance(60)
    await store.queues.delete("ClusterQueue", "cq", author=Author("eve", reason="not needed"))
    deleted, changed, created = (await store.audit.list()).records
    assert (created.user, created.groups, created.source, created.verb, created.reason) == ("bob", (), "", "create", "")
    assert created.before is None
    assert (changed.user, changed.groups, changed.source) == ("ada", ("admins", "staff"), "192.0.2.7")
    assert (changed.verb, changed.reason, changed.at) == ("patch", "more money", clock.now - 60)
    assert (changed.kind, changed.namespace, changed.name) == ("ClusterQueue", "", "cq")
    assert str(changed.revision) == written.metadata.resource_version
    assert changed.before == created.after
    assert changed.before is not None
    assert changed.after is not None
    assert "labels" not in changed.before["metadata"]
    assert changed.after["metadata"] == {"uid": written.metadata.uid, "generation": 2, "labels": {"a": "b"}}
    quotas = [each["spec"]["resourceGroups"][0]["flavors"][0] for each in (changed.before, changed.after)]
    assert [flavor["resources"][0]["nominalQuota"] for flavor in quotas] == ["10", "20"]
    assert (deleted.verb, deleted.reason, deleted.before, deleted.after) == (
        "delete",
        "not needed",
        changed.after,
        None,
    )


async def test_failed_unchanged_and_dry_run_writes_have_no_audit_record(store: Store):
    await store.queues.create(flavor(), author=ADA)
    with pytest.raises(AlreadyExists):
        await store.queues.create(flavor(), author=ADA)
    with pytest.raises(NotFound):
        await store.queues.delete("Cohort", "x", author=ADA)
    with pytest.raises(Conflict):
        await store.queues.delete("ResourceFlavor", flavor().name, uid="another", author=ADA)
    await store.queues.replace(flavor(), author=ADA)  # nothing differs
    await store.queues.create(cohort("a"), author=ADA, dry_run=True)
    await store.queues.delete("ResourceFlavor", flavor().name, author=ADA, dry_run=True)
    assert len((await store.audit.list()).records) == 1


async def test_reason_annotation_is_recorded_only_for_writes_that_change_the_reason(store: Store):
    def written(reason: str, **labels: str):
        return cohort("a").model_copy(
            update={
                "metadata": cohort("a").metadata.model_copy(
                    update={"annotations": {"sluice.dev/change-reason": reason}, "labels": labels}
                )
            }
        )

    await store.queues.create(written("new team"), author=Author("ada"))
    await store.queues.replace(written("new team", a="b"), author=Author("bob"))
    await store.queues.replace(written("renamed", a="c"), author=Author("bob"))
    await store.queues.replace(written("renamed again", a="d"), author=Author("bob", reason="said otherwise"))
    await store.queues.delete("Cohort", "a", author=Author("bob"))
    reasons = ["new team", "", "renamed", "said otherwise", ""]
    assert [version.reason for version in await store.queues.versions("Cohort", "a")] == reasons
    assert [record.reason for record in reversed((await store.audit.list()).records)] == reasons


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, ["lq", "b", "a"]),
        ({"user": "ada"}, ["lq", "a"]),
        ({"kind": "Cohort"}, ["b", "a"]),
        ({"kind": "Cohort", "user": "bob"}, ["b"]),
        ({"namespace": "team-a"}, ["lq"]),
        ({"namespace": ""}, ["b", "a"]),
        ({"name": "a"}, ["a"]),
        ({"verb": "create"}, ["b"]),
        ({"name": "nobody"}, []),
    ],
)
async def test_audit_filters_return_matching_records_newest_first(
    store: Store, wanted: dict[str, str], names: list[str]
):
    await store.queues.create(cohort("a"), author=ADA)
    await store.queues.create(cohort("b"), author=Author("bob"))
    await store.queues.create(local_queue("lq", "team-a"), author=ADA)
    assert [record.name for record in (await store.audit.list(wanted)).records] == names


async def test_audit_pages_contain_each_record_once_despite_new_records(store: Store):
    for n in range(5):
        await store.queues.create(cohort(f"c{n}"), author=ADA)
    first = await store.audit.list({"kind": "Cohort"}, limit=2)
    await store.queues.create(cohort("new"), author=ADA)
    second = await store.audit.list({"kind": "Cohort"}, limit=2, before=first.before)
    third = await store.audit.list({"kind": "Cohort"}, limit=2, before=second.before)
    pages = [[record.name for record in page.records] for page in (first, second, third)]
    assert pages == [["c4", "c3"], ["c2", "c1"], ["c0"]]
    assert [page.remaining for page in (first, second, third)] == [3, 1, 0]
    assert third.before is None
    assert (await store.audit.list(limit=6)).before is None
