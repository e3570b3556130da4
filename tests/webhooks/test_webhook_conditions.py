"""Match conditions of the webhooks: the updates and pods for which an API server calls them."""

from __future__ import annotations

import pytest
from custom_kinds import TRAINING_RUN_FORM
from hypothesis import given
from hypothesis import strategies as st
from policy_examples import SLUICE

from admission.kinds import all_kinds, parse_form
from admission.kinds.rules import QueueRule
from admission.sandbox.apiserver.cel import MATCH_VARIABLES, compile_expression, evaluate
from webhooks.expressions import is_created_by_user, touches_gated_fields
from webhooks.registration import Registration
from webhooks.review import Reviewer
from webhooks.scope import Scope

(OF_UPDATES,) = (
    hook
    for hook in Registration(all_kinds(), "https://127.0.0.1:1", Scope((SLUICE,))).configuration(b"")["webhooks"]
    if "UPDATE" in hook["rules"][0]["operations"]
)
CONDITIONS = [
    compile_expression(condition["expression"], MATCH_VARIABLES) for condition in OF_UPDATES["matchConditions"]
]
LABELS = st.none() | st.dictionaries(
    st.sampled_from(["sluice.dev/queue-name", "kueue.x-k8s.io/queue-name", "sluice.dev/max-exec-time-seconds", "x"]),
    st.sampled_from(["main", "other", "", "60"]),
)
ANNOTATIONS = st.none() | st.dictionaries(
    st.sampled_from(["sluice.dev/submitted-by", "sluice.dev/hold", "kueue.x-k8s.io/job-min-parallelism", "x"]),
    st.sampled_from(["alice", "true", "1", ""]),
)
OWNERS = st.none() | st.lists(
    st.fixed_dictionaries(
        {"apiVersion": st.just("batch/v1"), "kind": st.sampled_from(["Job", "CronJob"]), "uid": st.just("u")},
        optional={"controller": st.booleans()},
    ),
    max_size=2,
)
SPECS = st.fixed_dictionaries(
    {"template": st.sampled_from([{"spec": {"containers": [{"name": "c"}]}}, {"spec": {"containers": []}}])},
    optional={"suspend": st.booleans(), "parallelism": st.integers(0, 3), "managedBy": st.just("example.com/other")},
)


@st.composite
def jobs(draw):
    metadata = {
        "labels": draw(LABELS),
        "annotations": draw(ANNOTATIONS),
        "ownerReferences": draw(OWNERS),
        "deletionTimestamp": draw(st.none() | st.just("2026-01-02T03:04:05Z")),
    }
    return {
        "metadata": {"name": "j"} | {field: value for field, value in metadata.items() if value is not None},
        "spec": draw(SPECS),
    }


METADATA = ["labels", "annotations", "ownerReferences", "deletionTimestamp"]


@pytest.mark.costly
@given(old=jobs(), changed=jobs(), fields=st.sets(st.sampled_from([*METADATA, "spec"])))
def test_update_excluded_by_match_conditions_would_be_allowed_unchanged(old, changed, fields):
    new = {"metadata": dict(old["metadata"]), "spec": changed["spec"] if "spec" in fields else old["spec"]}
    for field in fields - {"spec"}:
        new["metadata"].pop(field, None)
        if field in changed["metadata"]:
            new["metadata"][field] = changed["metadata"][field]
    request = {
        "uid": "r-1",
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "operation": "UPDATE",
        "userInfo": {"username": "alice"},
    }
    values = {"object": new, "oldObject": old, "request": request}
    if not all(evaluate(condition, values) for condition in CONDITIONS):
        review = {"request": request | {"object": new, "oldObject": old}}
        answer = Reviewer(all_kinds(), own_usernames=[SLUICE]).review(review)
        assert answer["response"] == {"uid": "r-1", "allowed": True}


@pytest.mark.parametrize(
    ("changed", "sent"),
    [({"control": {"paused": False}}, True), ({"control": {}}, True), ({"roles": [{}]}, True), ({"notes": 1}, False)],
)
def test_webhook_is_called_for_fields_of_a_kind_outside_spec(changed, sent):
    roles = {"path": "roles[*]", "nameFrom": "role", "template": "template", "replicas": "count"}
    form = parse_form({**TRAINING_RUN_FORM, "suspend": "control.paused", "podSets": [roles]})
    condition = compile_expression(touches_gated_fields(*all_kinds(own=[form])), MATCH_VARIABLES)
    old = {"metadata": {"name": "r"}, "control": {"paused": True}}
    values = {"object": old | changed, "oldObject": old, "request": {"operation": "UPDATE"}}
    assert evaluate(condition, values) is sent


@pytest.mark.parametrize(
    ("maker", "labels", "sent"),
    [
        ("alice", {}, True),
        ("system:serviceaccount:kube-system:statefulset-controller", {}, True),
        ("system:serviceaccount:kube-system:job-controller", {}, False),
        ("system:serviceaccount:kube-system:job-controller", {"sluice.dev/pod-group-name": "g"}, True),
        ("system:serviceaccount:kube-system:job-controller", {"kueue.x-k8s.io/pod-group-name": "g"}, True),
        ("system:serviceaccount:kube-system:daemon-set-controller", {"sluice.dev/pod-group-name": "g"}, False),
    ],
)
def test_pods_of_a_job_match_the_condition_only_with_a_pod_group_label(maker, labels, sent):
    condition = compile_expression(is_created_by_user(all_kinds(frameworks=("batch/job", "pod"))), MATCH_VARIABLES)
    request = {"operation": "CREATE", "userInfo": {"username": maker}}
    pod = {"metadata": {"name": "p", "labels": labels} if labels else {"name": "p"}}
    assert evaluate(condition, {"object": pod, "oldObject": None, "request": request}) is sent


def test_pods_of_a_daemonset_match_the_condition_of_no_webhook():
    scope = Scope((SLUICE,), managed=(), rules=(QueueRule("main"),))
    hooks = Registration(all_kinds(frameworks=("pod",)), "https://127.0.0.1:1", scope).configuration(b"")["webhooks"]
    names = ["labelled-1", "labelled-2", "misspelled", "ruled", "managed"]
    assert [hook["name"].split(".")[1] for hook in hooks] == names
    user = {"username": "system:serviceaccount:kube-system:daemon-set-controller"}
    values = {"object": {"metadata": {"name": "p"}}, "oldObject": None}
    for hook in hooks:
        (condition,) = hook["matchConditions"]
        program = compile_expression(condition["expression"], MATCH_VARIABLES)
        assert not evaluate(program, {**values, "request": {"operation": "CREATE", "userInfo": user}})
