"""Log lines at level `info` about writes of queue objects: author, changed fields and reason."""

from __future__ import annotations

import pytest
from store_examples import cluster_queue, flavor, local_queue

from admission.store.audit_log import Author
from admission.store.store import Store


@pytest.fixture
def change_log_records(caplog):
    caplog.set_level("INFO")

    def records():
        return [record for record in caplog.records if record.name == "admission.store.objects.change_log"]

    return records


async def test_each_write_is_logged_with_author_changed_fields_and_reason(store: Store, change_log_records):
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "sluice.dev/change-reason": "team grew"}
    noted = cluster_queue(cpu="12", annotations=applied)
    ada = Author("ada", reason="more nodes")
    await store.queues.create(flavor(), author=ada)
    await store.queues.create(cluster_queue(cpu="10"), author=ada)
    await store.queues.replace(noted, author=Author("bob"))
    await store.queues.replace(noted, author=Author("bob"))  # nothing differs
    await store.queues.create(local_queue(), author=Author("bob"))
    await store.queues.delete("LocalQueue", "main", namespace="team-a", author=ada)
    quota = "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"
    assert [record.getMessage() for record in change_log_records()] == [
        "ada created ResourceFlavor default; reason: more nodes",
        "ada created ClusterQueue cq; reason: more nodes",
        f"bob changed ClusterQueue cq: {quota} 10 -> 12; reason: team grew",
        "bob created LocalQueue team-a/main",
        "ada deleted LocalQueue team-a/main; reason: more nodes",
    ]
    assert change_log_records()[-1].fields == {
        "kind": "LocalQueue",
        "name": "team-a/main",
        "operation": "deleted",
        "user": "ada",
        "reason": "more nodes",
    }


async def test_dry_run_is_not_logged(store: Store, change_log_records):
    await store.queues.create(flavor(), author=Author("ada"), dry_run=True)
    assert change_log_records() == []


async def test_author_reason_and_labels_cannot_forge_or_overflow_log_lines(store: Store, change_log_records):
    hostile = Author("eve\n2026 INFO forged\x1b[2J" + "x" * 5000, reason="y\n" * 5000)
    await store.queues.create(flavor(), author=hostile)
    labels = {f"label-{number}": "z" * 60 for number in range(50)}
    changed = flavor()
    changed = changed.model_copy(update={"metadata": changed.metadata.model_copy(update={"labels": labels})})
    await store.queues.replace(changed, author=hostile)
    texts = [record.getMessage() for record in change_log_records()]
    assert len(texts) == 2
    assert all(text.isprintable() and len(text) <= 1000 for text in texts)
    assert ", 47 more; reason: y y" in texts[1]
