"""Queues named by annotations and fields of other systems, with a gate of webhooks or of policies."""

from __future__ import annotations

import pytest
from kind_manifests import document
from policy_examples import SLUICE
from review_examples import RecordingReviewer

from admission.cli.configuration.integrations import IntegrationsSettings
from admission.cluster.errors import Forbidden, Invalid
from admission.kinds import all_kinds
from admission.sandbox.operators import definition
from admission.serving.listener import open_sockets
from admission.serving.tls import ReloadingContext
from webhooks.gate import GateConfig
from webhooks.gate_reconciler import GateReconciler
from webhooks.registration import Registration
from webhooks.scope import Scope
from webhooks.server import answering

GIVEN = "sluice.dev/given-labels"
QUEUE, KUEUE = "sluice.dev/queue-name", "kueue.x-k8s.io/queue-name"
YUNIKORN, VOLCANO = "yunikorn.apache.org/queue", "scheduling.volcano.sh/queue-name"
PYTORCH, SPARK = "kubeflow.org/pytorchjob", "sparkoperator.k8s.io/sparkapplication"
INTEGRATIONS = IntegrationsSettings(
    frameworks=("batch/job", "pod", "statefulset", PYTORCH, SPARK),
    queue_annotations=(YUNIKORN, VOLCANO, KUEUE),
    queue_fields=("spec.runPolicy.schedulingPolicy.queue", "spec.batchSchedulerOptions.queue"),
)
KINDS = INTEGRATIONS.registry()
TEAM = {"key": "team", "operator": "Exists"}
SCOPE = Scope((SLUICE,), managed=(TEAM,), rules=INTEGRATIONS.queue_rules())
BOTH = pytest.mark.parametrize("gate", ["webhooks", "policies"], indirect=True)
WEBHOOKS = pytest.mark.parametrize("gate", ["webhooks"], indirect=True)


@pytest.fixture
async def gate(request, tmp_path, certificates, sandbox, sluice):
    """Install the gate, with team-a as managed namespace; return the reviewer."""
    for name in (PYTORCH, SPARK):
        (kind,) = all_kinds(frameworks=(name,))
        await sandbox.local("alice").create("customresourcedefinitions", "", definition(kind, None))
    (socket,) = await open_sockets("127.0.0.1", 0)
    reviewer = RecordingReviewer(KINDS, own_usernames=[SLUICE], rules=SCOPE.rules)
    context = ReloadingContext(tmp_path / "certificates" / "tls.crt", tmp_path / "certificates" / "tls.key")
    async with answering(reviewer, [socket], ssl_context=context):
        registration = Registration(tuple(KINDS), f"https://127.0.0.1:{socket.getsockname()[1]}", SCOPE)
        configuration = registration.configuration(certificates.ca_bundle)
        assert await GateReconciler(sluice, request.param, tuple(KINDS), SCOPE, lambda: configuration).ensure()
        yield reviewer


def path(plural, namespace="default", root="/apis/batch/v1"):
    return f"{root}/namespaces/{namespace}/{plural}"


POD = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}


def job(annotations=None, labels=None, name="j", **spec):
    metadata = {"name": name, "annotations": annotations or {}, **({"labels": labels} if labels else {})}
    return {"metadata": metadata, "spec": {"template": {"spec": POD}, **spec}}


def is_gated(obj, queue, user="alice"):
    """Whether an object is suspended in this queue, with this user as its submitter."""
    metadata = obj["metadata"]
    assert metadata["labels"][QUEUE] == queue
    assert metadata["annotations"]["sluice.dev/submitted-by"] == user
    return obj["spec"].get("suspend") is True


@BOTH
@pytest.mark.parametrize("namespace", ["default", "team-a"])
async def test_job_with_a_queue_annotation_is_gated_and_keeps_the_annotation(alice, gate, namespace):
    created = await alice.create(path("jobs", namespace), job({YUNIKORN: "root.a", "team": "x"}))
    assert is_gated(created, "root.a")
    assert created["metadata"]["labels"] == {QUEUE: "root.a"}
    assert created["metadata"]["annotations"][GIVEN] == f"{QUEUE}=root.a"
    assert {key: created["metadata"]["annotations"][key] for key in (YUNIKORN, "team")} == {
        YUNIKORN: "root.a",
        "team": "x",
    }


@BOTH
async def test_job_that_forges_gate_and_submitter_is_queued(alice, gate):
    forged = job({YUNIKORN: "y", "sluice.dev/submitted-by": "alice"}, suspend=True)
    assert is_gated(await alice.create(path("jobs"), forged), "y")


@BOTH
async def test_first_configured_annotation_names_the_queue_unless_a_label_does(alice, gate):
    both = job({VOLCANO: "v", YUNIKORN: "y"}, {"app": "train"})
    assert is_gated(await alice.create(path("jobs"), both), "y")
    third = job({KUEUE: "k", YUNIKORN: ""}, name="third")
    assert is_gated(await alice.create(path("jobs"), third), "k")
    labelled = await alice.create(path("jobs"), job({YUNIKORN: "y"}, {KUEUE: "k"}, name="labelled"))
    assert labelled["metadata"]["labels"] == {KUEUE: "k"}
    assert labelled["spec"]["suspend"] is True
    assert GIVEN not in labelled["metadata"]["annotations"]


@WEBHOOKS
async def test_record_of_added_labels_cannot_be_removed_or_forged(alice, gate, sluice):
    one = f"{path('jobs', 'team-a')}/j"

    async def note(changes):
        metadata = (await alice.patch(one, changes))["metadata"]
        return metadata["labels"].get(QUEUE), metadata["annotations"].get(GIVEN)

    await alice.create(path("jobs", "team-a"), job())
    taken_away = {"metadata": {"labels": {QUEUE: None}, "annotations": {GIVEN: None}}}
    assert await note(taken_away) == ("default", f"{QUEUE}=default")
    await sluice.patch(one, {"spec": {"suspend": False}})
    assert await note(taken_away) == ("default", f"{QUEUE}=default"), "nor while it runs"
    forged = {"metadata": {"annotations": {GIVEN: "sluice.dev/queue-name=forged"}}, "spec": {"suspend": True}}
    assert await note(forged) == ("default", f"{QUEUE}=default")
    own = {"metadata": {"labels": {QUEUE: "own"}, "annotations": {GIVEN: None}}}
    assert await note(own) == ("own", None)
    assert await note(taken_away) == ("own", None), "what was kept of the user's is his"


@BOTH
async def test_job_without_queue_annotation_is_queued_only_in_managed_namespaces(alice, gate):
    free = await alice.create(path("jobs"), job({"volcano.sh/queue-name": "not-configured"}))
    assert QUEUE not in free["metadata"]["labels"]
    assert not free["spec"]["suspend"]
    assert gate.warned == []
    managed = await alice.create(path("jobs", "team-a"), job({"a": "b"}))
    assert is_gated(managed, "default")
    assert managed["metadata"]["annotations"][GIVEN] == f"{QUEUE}=default"


@BOTH
@pytest.mark.parametrize(
    ("manifest", "plural", "spec"),
    [
        ("pytorchjob-v1", "pytorchjobs", {"runPolicy": {"schedulingPolicy": {"queue": "v"}}}),
        ("sparkapplication", "sparkapplications", {"batchSchedulerOptions": {"queue": "v"}}),
    ],
)
async def test_annotation_precedes_the_queue_field_of_a_custom_resource(alice, gate, manifest, plural, spec):
    obj = document(manifest)
    kind = KINDS.get(obj["apiVersion"].rpartition("/")[0], obj["kind"])
    where = path(plural, root=f"/apis/{obj['apiVersion']}")
    for name, annotated, queue in (("field", {}, "v"), ("annotation", {VOLCANO: "a"}, "a")):
        metadata = {"name": name, "annotations": annotated}
        created = await alice.create(where, {**obj, "metadata": metadata, "spec": {**obj["spec"], **spec}})
        assert created["metadata"]["labels"] == {QUEUE: queue}
        assert created["metadata"]["annotations"][GIVEN] == f"{QUEUE}={queue}"
        assert kind.observe(created).suspended


@WEBHOOKS
async def test_pods_and_statefulset_templates_are_queued_by_annotations(alice, gate):
    root = "/api/v1"
    pod = await alice.create(
        path("pods", root=root), {"metadata": {"name": "p", "annotations": {VOLCANO: "v"}}, "spec": POD}
    )
    assert pod["spec"]["schedulingGates"] == [{"name": "sluice.dev/admission"}]
    assert pod["metadata"]["labels"] == {QUEUE: "v", "sluice.dev/managed": "true"}
    template = {"metadata": {"labels": {"app": "s"}, "annotations": {YUNIKORN: "y"}},
                "spec": {"containers": POD["containers"]}}  # fmt: skip
    spec = {"replicas": 2, "serviceName": "s", "selector": {"matchLabels": {"app": "s"}}, "template": template}
    created = await alice.create(path("statefulsets", root="/apis/apps/v1"), {"metadata": {"name": "s"}, "spec": spec})
    assert created["metadata"]["labels"] == {QUEUE: "y"}
    assert created["spec"]["template"]["metadata"]["labels"] == {"app": "s", QUEUE: "y"}


@BOTH
@pytest.mark.parametrize("suspend", [True, False])
async def test_changed_or_removed_queue_annotation_does_not_change_the_queue(alice, gate, sluice, suspend):
    """`suspend`: whether the Job is waiting; otherwise Sluice has started it."""
    await alice.create(path("jobs", "team-a"), job({YUNIKORN: "y"}))
    one = f"{path('jobs', 'team-a')}/j"
    if not suspend:
        await sluice.patch(one, {"spec": {"suspend": False}})
    for value in ("other", "Not A Name", "", None):
        changed = await alice.patch(one, {"metadata": {"annotations": {YUNIKORN: value}}})
        assert changed["metadata"]["labels"] == {QUEUE: "y"}
        assert changed["spec"]["suspend"] is suspend


@WEBHOOKS
async def test_job_stays_queued_if_label_and_annotation_are_removed_together(alice, gate):
    await alice.create(path("jobs"), job({YUNIKORN: "y"}))
    assert gate.warned[-1] == [
        f'metadata.labels: no queue label, so this Job is queued in LocalQueue "y" by metadata.annotations[{YUNIKORN}]'
    ]
    without = {"labels": {QUEUE: None}, "annotations": {YUNIKORN: None, GIVEN: None}}
    gone = {"metadata": without, "spec": {"suspend": False}}
    kept = await alice.patch(f"{path('jobs')}/j", gone)
    assert is_gated(kept, "y")
    assert f"kept, because it is queued by metadata.annotations[{YUNIKORN}]" in gate.warned[-1][0]
    assert YUNIKORN not in kept["metadata"]["annotations"]
    assert kept["metadata"]["annotations"][GIVEN] == f"{QUEUE}=y"
    moved = await alice.patch(f"{path('jobs')}/j", {"metadata": {"labels": {QUEUE: "other"}}})
    assert is_gated(moved, "other")


LARGE = "q" * 200_000


@BOTH
@pytest.mark.parametrize("value", ["", "No Name", "Name", "a/b", "q" * 64, LARGE, "ключ"])
async def test_invalid_queue_name_in_an_annotation_is_refused(alice, gate, value):
    with pytest.raises((Invalid, Forbidden)) as refused:
        await alice.create(path("jobs"), job({YUNIKORN: value}))
    # A policy refuses an empty annotation with the message for the label that Sluice would add.
    assert f"metadata.annotations[{YUNIKORN}]" in str(refused.value) or (not value and not gate.warned)
    assert len(str(refused.value)) < 600
    assert (await alice.get(path("jobs")))["items"] == []


@WEBHOOKS
async def test_queue_field_that_is_no_string_is_refused(alice, gate):
    obj = document("pytorchjob-v1")
    spec = {**obj["spec"], "runPolicy": {"schedulingPolicy": {"queue": {"name": "v"}}}}
    with pytest.raises(Invalid, match=r"spec.runPolicy.schedulingPolicy.queue: .* is no LocalQueue"):
        await alice.create(
            path("pytorchjobs", root="/apis/kubeflow.org/v1"), {**obj, "metadata": {"name": "j"}, "spec": spec}
        )


def test_rules_have_no_webhooks_by_default_and_are_saved_in_the_gate_config():
    plain, scope = all_kinds(frameworks=INTEGRATIONS.frameworks), Scope((SLUICE,))
    entries = Registration(tuple(plain), "https://127.0.0.1:1", scope).configuration(b"")["webhooks"]
    assert [each["name"] for each in entries if ".ruled." in each["name"]] == []
    assert IntegrationsSettings().queue_rules() == ()
    config = GateConfig("certificates", (SLUICE,), kueue_labels=True, log_level="info", rules=SCOPE.rules)
    assert GateConfig.load(config.dump()) == config
