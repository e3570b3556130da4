"""Rules that name the queue of objects without a queue label; an API server calls the webhook over TLS."""

from __future__ import annotations

import base64

import jsonpatch
import orjson
import pytest
from policy_examples import SLUICE
from review_examples import RecordingReviewer

from admission.cli.configuration.settings import load_settings
from admission.cli.errors import InvalidSettings
from admission.kinds import GROUPED, LABELLED, all_kinds, frameworks_known
from admission.kinds.rules import QueueRule
from admission.sandbox import Sandbox, User
from admission.serving.listener import open_sockets
from admission.serving.tls import ReloadingContext
from webhooks.gate import GateConfig
from webhooks.gate_reconciler import GateReconciler
from webhooks.registration import Registration
from webhooks.review import Reviewer
from webhooks.scope import Scope
from webhooks.server import answering

GIVEN = "sluice.dev/given-labels"
QUEUE = "sluice.dev/queue-name"
RULES = (
    QueueRule("gpu", namespaces=("team-a", "team-b"), labels={"app.kubernetes.io/managed-by": "areal-scheduler"}),
    QueueRule("sets", kinds=("jobset.x-k8s.io/jobset",)),
    QueueRule("rest", namespaces=("team-a",)),
    QueueRule("never", namespaces=("team-a", "kube-system")),
)
KINDS = all_kinds(frameworks=("batch/job", "jobset.x-k8s.io/jobset"))
SCOPE = Scope((SLUICE,), rules=RULES)
AREAL = {"app.kubernetes.io/managed-by": "areal-scheduler"}


@pytest.fixture
async def sandbox():
    users = {f"{name}-token": User(name, groups=("system:masters",)) for name in (SLUICE, "alice")}
    async with Sandbox(controllers=False, users=users) as sandbox:
        for name in ("team-a", "team-b", "team-c"):
            await sandbox.local("alice").create("namespaces", "", {"metadata": {"name": name}})
        yield sandbox


@pytest.fixture
async def reviewer(tmp_path, certificates, sluice):
    """Serve and register the webhook; return its reviewer."""
    (socket,) = await open_sockets("127.0.0.1", 0)
    reviewer = RecordingReviewer(KINDS, own_usernames=[SLUICE], rules=RULES)
    directory = tmp_path / "certificates"
    context = ReloadingContext(directory / "tls.crt", directory / "tls.key")
    async with answering(reviewer, [socket], ssl_context=context):
        registration = Registration(tuple(KINDS), f"https://127.0.0.1:{socket.getsockname()[1]}", SCOPE)
        configuration = registration.configuration(certificates.ca_bundle)
        assert await GateReconciler(sluice, "webhooks", tuple(KINDS), SCOPE, lambda: configuration).ensure()
        yield reviewer


def jobs(namespace):
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"


def job(name="j", labels=None, **spec):
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"template": {"spec": pod}, **spec}}


@pytest.mark.parametrize("name", [name for name in frameworks_known() if name not in LABELLED])
def test_rule_matches_a_kind_by_its_framework_name(name):
    kind = next(iter(all_kinds(frameworks=(name, "pod") if name in GROUPED else (name,))))
    assert QueueRule("q", kinds=(name,)).is_for(kind)
    assert not QueueRule("q", kinds=("another",)).is_for(kind)


@pytest.mark.parametrize(
    ("namespace", "labels", "queue", "number"),
    [
        ("team-a", AREAL, "gpu", 1),
        ("team-b", AREAL, "gpu", 1),
        ("team-a", {}, "rest", 3),
        ("team-a", {"app.kubernetes.io/managed-by": "helm"}, "rest", 3),
    ],
)
async def test_first_matching_rule_names_the_queue_with_a_warning(alice, reviewer, namespace, labels, queue, number):
    created = await alice.create(jobs(namespace), job(labels=labels))
    assert created["spec"]["suspend"] is True
    assert created["metadata"]["labels"] == {**labels, QUEUE: queue}
    assert created["metadata"]["annotations"] == {"sluice.dev/submitted-by": "alice", GIVEN: f"{QUEUE}={queue}"}
    queued = f'so this Job is queued in LocalQueue "{queue}" by rule {number} of integrations.rules'
    assert reviewer.warned == [[f"metadata.labels: no queue label, {queued}"]]


async def test_queue_label_precedes_all_rules(alice, reviewer):
    created = await alice.create(jobs("team-a"), job(labels={QUEUE: "mine"}))
    assert created["metadata"]["labels"] == {QUEUE: "mine"}
    assert reviewer.warned == [[]]


async def test_webhook_is_not_called_for_jobs_that_no_rule_matches(alice, reviewer):
    for namespace, labels in (("team-b", {}), ("team-c", AREAL), ("kube-system", {})):
        created = await alice.create(jobs(namespace), job(labels=labels))
        assert created["spec"]["suspend"] is False
        assert QUEUE not in created["metadata"]["labels"]
    assert reviewer.warned == []


async def test_job_queued_by_a_rule_stays_queued_if_its_labels_are_removed(alice, reviewer):
    await alice.create(jobs("team-b"), job(labels=AREAL))
    gone = {"metadata": {"labels": {QUEUE: None, **dict.fromkeys(AREAL)}}, "spec": {"suspend": False}}
    kept = await alice.patch(f"{jobs('team-b')}/j", gone)
    assert kept["metadata"]["labels"][QUEUE] == "gpu"
    assert kept["metadata"]["labels"].keys().isdisjoint(AREAL)
    assert kept["spec"]["suspend"] is True
    assert "kept, because it is queued by rule 1 of integrations.rules" in reviewer.warned[-1][0]
    moved = await alice.patch(f"{jobs('team-b')}/j", {"metadata": {"labels": {QUEUE: "other"}}})
    assert moved["metadata"]["labels"][QUEUE] == "other"


@pytest.mark.parametrize(
    ("labels", "given"),
    [
        ({"exp": "gsm8k", "trial": "t0", "role": "actor"}, ("gsm8k.t0", "actor")),
        ({"exp": "gsm8k.t0", "trial": "t0", "role": "Eval_Rollout"}, ("gsm8k-t0-a1c57662.t0", "eval-rollout")),
        ({"exp": "gsm8k", "trial": "t0", "sluice.dev/pod-set-name": "ref"}, ("gsm8k.t0", "ref")),
        ({"exp": "e" * 63, "trial": "t" * 63, "role": "actor"}, (f"{'e' * 54}-358fbc3b", "actor")),
        ({"exp": "gsm8k", "role": "actor"}, (None, None)),
        ({"exp": "e", "trial": "t", "kueue.x-k8s.io/pod-group-name": "g", "sluice.dev/pod-set-name": "s"}, (None, "s")),
    ],
)
def test_rule_assigns_pods_to_groups_by_their_labels(labels, given):
    rule = QueueRule("q", group_name_from=("exp", "trial"), pod_set_from="role")
    kinds = all_kinds(frameworks=("pod",))
    new = {"metadata": {"name": "p", "namespace": "a", "labels": labels}, "spec": {"containers": []}}
    request = {"uid": "u", "operation": "CREATE", "namespace": "a", "object": new, "oldObject": None}
    request |= {"resource": {"group": "", "version": "v1", "resource": "pods"}, "userInfo": {"username": "alice"}}
    answer = Reviewer(kinds, own_usernames=[SLUICE], rules=[rule]).review({"request": request})["response"]
    patch = {each["path"]: each["value"] for each in orjson.loads(base64.b64decode(answer.get("patch", "")) or b"[]")}
    assert patch[f"/metadata/labels/{QUEUE.replace('/', '~1')}"] == "q"
    noted = patch[f"/metadata/annotations/{GIVEN.replace('/', '~1')}"]
    written = {path.removeprefix("/metadata/labels/").replace("~1", "/"): value for path, value in patch.items()
               if path.startswith("/metadata/labels/") and "managed" not in path}  # fmt: skip
    assert dict(each.split("=") for each in noted.split(",")) == written
    has = {**labels, **{path.split("/")[-1].replace("~1", "/"): value for path, value in patch.items()}}
    assert (has.get("sluice.dev/pod-group-name"), has.get("sluice.dev/pod-set-name")) == given


def test_a_stateful_set_is_queued_by_a_rule():
    kinds = all_kinds(frameworks=("statefulset", "pod"))
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c"}]}}
    new = {"metadata": {"name": "s", "namespace": "a"}, "spec": {"replicas": 2, "template": template}}
    request = {"uid": "u", "operation": "CREATE", "namespace": "a", "object": new, "oldObject": None}
    request |= {"resource": {"group": "apps", "version": "v1", "resource": "statefulsets"}}
    request |= {"userInfo": {"username": "alice"}}
    rules = [QueueRule("others", kinds=("pod",)), QueueRule("sets", kinds=("statefulset",))]
    answer = Reviewer(kinds.gated, own_usernames=[SLUICE], rules=rules).review({"request": request})["response"]
    queued = jsonpatch.apply_patch(new, orjson.loads(base64.b64decode(answer["patch"])))
    assert queued["metadata"]["labels"] == {QUEUE: "sets"}


def test_rule_webhooks_exist_only_for_kinds_that_rules_name():
    rules = (QueueRule("sets", kinds=("jobset.x-k8s.io/jobset",)),)
    registered = Registration(tuple(KINDS), "https://127.0.0.1:1", Scope((SLUICE,), rules=rules)).configuration(b"")
    ruled = [each["name"] for each in registered["webhooks"] if ".ruled." in each["name"]]
    assert ruled == ["jobsets.jobset.x-k8s.io.ruled.sluice.dev"]


def test_rules_of_the_settings_file_are_saved_in_the_gate_config(tmp_path):
    file = tmp_path / "sluice.yaml"
    file.write_text("""integrations:
  frameworks: [pod]
  rules:
  - {queue: q, namespaces: [a], kinds: [pod], matchLabels: {b: c}, podGroup: {nameFrom: [d, e], podSetFrom: f}}
""")
    rules = load_settings({}, config=file).integrations.queue_rules()
    assert rules == (QueueRule("q", ("a",), ("pod",), {"b": "c"}, ("d", "e"), "f"),)
    config = GateConfig("certificates", (SLUICE,), kueue_labels=True, log_level="info", rules=rules)
    assert GateConfig.load(config.dump()) == config


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("integrations: {rules: [{queue: A}]}", 'integrations.rules[0].queue in {file}:1: "A" is no name'),
        ("integrations: {rules: [{namespaces: [a]}]}", "integrations.rules[0].queue in {file}:1: is required"),
        (
            "integrations: {frameworks: [batch/job], rules: [{queue: a, kinds: [ray.io/rayjob]}]}",
            'integrations.rules[0].kinds[0] in {file}:1: "ray.io/rayjob" is not queued: add it to frameworks',
        ),
        (
            "integrations: {rules: [{queue: a}]}\nadmission: auto",
            "integrations.rules in {file}:1: are applied only by the webhooks",
        ),
        (
            "integrations: {frameworks: [batch/job], rules: [{queue: a, podGroup: {nameFrom: [b]}}]}",
            "integrations.rules[0].podGroup in {file}:1: is for pods: add pod to frameworks",
        ),
    ],
)
def test_invalid_rule_is_reported_with_its_path_and_line(tmp_path, content, message):
    file = tmp_path / "sluice.yaml"
    file.write_text(content)
    with pytest.raises(InvalidSettings) as told:
        load_settings({}, config=file)
    assert message.replace("{file}", str(file)) in str(told.value)
