"""Queue and priority labels of other systems: read in a configured order, after Sluice's own, and never written."""

from __future__ import annotations

import base64

import jsonpatch
import orjson
import pytest
from job_examples import cluster_queue, flavor, job, local_queue, runs

from admission.cli.configuration.settings import load_settings
from admission.cli.errors import InvalidSettings
from admission.kinds import all_kinds
from webhooks.gate import GateConfig
from webhooks.registration import Registration
from webhooks.review import Reviewer
from webhooks.scope import Scope

KAI, YUNIKORN, GENERIC = "kai.scheduler/queue", "yunikorn.apache.org/queue", "queue"
KINDS = all_kinds(queue_labels=(KAI, YUNIKORN), priority_labels=("priorityClassName",))
JOBS = KINDS.get("batch", "Job")


def labelled(**labels):
    obj = job("a", queue=None)
    obj["metadata"] |= {
        "labels": labels,
        "uid": "u",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }
    return obj


@pytest.mark.parametrize(
    ("labels", "queue"),
    [
        ({KAI: "a"}, "a"),
        ({YUNIKORN: "b"}, "b"),
        ({YUNIKORN: "b", KAI: "a"}, "a"),
        ({KAI: "a", "kueue.x-k8s.io/queue-name": "k"}, "k"),
        ({KAI: "a", "kueue.x-k8s.io/queue-name": "k", "sluice.dev/queue-name": "s"}, "s"),
        ({KAI: ""}, ""),
        ({GENERIC: "c"}, ""),
    ],
)
def test_queue_is_read_from_the_first_label_in_configured_order(labels, queue):
    assert JOBS.queue_name(labelled(**labels)) == queue
    plain = all_kinds().get("batch", "Job")
    assert plain.queue_name(labelled(**{KAI: "a", YUNIKORN: "b", GENERIC: "c"})) == ""


def test_a_priority_label_of_another_system_names_a_workload_priority_class():
    assert JOBS.observe(labelled(priorityClassName="train")).priority_class == "train"
    own = {"priorityClassName": "train", "sluice.dev/priority-class": "high"}
    assert JOBS.observe(labelled(**own)).priority_class == "high"


def test_webhook_reads_configured_queue_labels_and_writes_none():
    config = GateConfig(
        "certificates",
        ("sluice",),
        kueue_labels=True,
        log_level="INFO",
        queue_labels=(KAI,),
        group_labels=("applicationId",),
    )
    assert GateConfig.load(config.dump()) == config
    review = {
        "request": {
            "uid": "r",
            "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
            "operation": "CREATE",
            "namespace": "team-a",
            "userInfo": {"username": "alice"},
            "object": {**labelled(**{KAI: "a"}), "spec": job("a", suspend=False)["spec"]},
        }
    }
    response = Reviewer(KINDS, own_usernames=["sluice"]).review(review)["response"]
    stored = jsonpatch.apply_patch(review["request"]["object"], orjson.loads(base64.b64decode(response["patch"])))
    assert stored["spec"]["suspend"] is True
    assert stored["metadata"]["labels"] == {KAI: "a"}
    scope = Scope(("sluice",))
    entries = Registration(tuple(KINDS), "https://192.0.2.1:9443", scope).configuration(b"")["webhooks"]
    queued = next(each["expression"] for each in entries[-1]["matchConditions"] if each["name"] == "queued")
    assert f"'{KAI}' in object.metadata.labels" in queued
    assert any(
        {"key": KAI, "operator": "Exists"} in each["objectSelector"]["matchExpressions"] for each in entries[:-1]
    )


async def test_job_with_queue_label_of_other_system_is_admitted_with_unchanged_labels(world):
    await world.begin(flavor(), cluster_queue(), local_queue("team.train"), kinds=KINDS)
    manifest = job("a", queue=None)
    manifest["metadata"]["labels"] = {KAI: "team.train"}
    await world.submit(manifest)
    running = await world.job("a", runs)
    assert running["metadata"]["labels"] == {KAI: "team.train"}


@pytest.mark.parametrize(
    ("integrations", "message"),
    [
        (
            "{queueLabels: [kueue.x-k8s.io/queue-name]}",
            'queueLabels[0] in {file}:1: "kueue.x-k8s.io/queue-name" is read',
        ),
        (
            "{frameworks: [trainer.kubeflow.org/trainjob]}",
            "frameworks in {file}:1: the pods of trainer.kubeflow.org/trainjob are read from its JobSet",
        ),
        ("{frameworks: [deployment]}", "frameworks in {file}:1: deployment is queued by its pods: add pod"),
        (
            "{frameworks: [pod, deployment], rules: [{queue: q, kinds: [deployment]}]}",
            'rules[0].kinds[0] in {file}:1: "deployment" is queued by its pods, each separately: write pod',
        ),
        ("{queueLabels: [queue, queue]}", 'queueLabels[1] in {file}:1: "queue" is read already: leave it out'),
        ("{priorityLabels: [a b]}", "priorityLabels[0] in {file}:1: "),
        (
            "{frameworks: [pod], groupLabels: [team]}",
            'groupLabels[0] in {file}:1: "team" is not known to name a group;',
        ),
        (
            "{exclude: [pod], groupLabels: [applicationId]}",
            "groupLabels in {file}:1: groups are made of pods: add pod to frameworks",
        ),
        ("{exclude: [pods]}", 'exclude[0] in {file}:1: "pods" is no kind that Sluice knows; did you mean pod?'),
        (
            "{exclude: [pod], rules: [{queue: q, kinds: [statefulset]}]}",
            'rules[0].kinds[0] in {file}:1: "statefulset" is not queued: leave it out of exclude',
        ),
        ("{queueAnnotations: [a b]}", "queueAnnotations[0] in {file}:1: "),
        (
            "{queueAnnotations: [a.b/c, a.b/c]}",
            'queueAnnotations[1] in {file}:1: "a.b/c" is read already: leave it out',
        ),
        (
            "{queueFields: ['spec.tasks[*].queue']}",
            'queueFields[0] in {file}:1: "spec.tasks[*].queue" is not the path of',
        ),
        ("{queueFields: [spec.a-queue]}", 'queueFields[0] in {file}:1: "spec.a-queue" is not the path of a field'),
        ("{queueFields: [spec..queue]}", 'queueFields[0] in {file}:1: "spec..queue" is not the path of a field'),
    ],
)
def test_invalid_integration_setting_is_reported_with_path_and_line(tmp_path, integrations, message):
    file = tmp_path / "sluice.yaml"
    file.write_text(f"integrations: {integrations}\n")
    with pytest.raises(InvalidSettings) as told:
        load_settings({}, config=file)
    assert f"integrations.{message.replace('{file}', str(file))}" in str(told.value)
