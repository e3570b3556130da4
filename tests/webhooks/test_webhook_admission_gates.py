"""Changes of the annotation `kueue.x-k8s.io/admission-gated-by` that the webhook permits."""

from __future__ import annotations

import base64
import json

import jsonpatch
import pytest
from review_examples import judge, make_job, make_review, mutate

from admission.kinds import all_kinds
from admission.kinds.base import GATED_BY
from admission.sandbox.apiserver.cel import MATCH_VARIABLES, compile_expression, evaluate
from webhooks.registration import Registration
from webhooks.review import Reviewer
from webhooks.scope import Scope


def gated_job(value, **spec):
    annotations = {"sluice.dev/submitted-by": "alice"} | ({} if value is None else {GATED_BY: value})
    return make_job(annotations=annotations, **{"suspend": True, **spec})


@pytest.mark.parametrize("value", ["", " ", "a.b/c", "a.b/c, d.e/f/g~%", "x.y/" + "z" * 59])
def test_valid_controller_names_are_accepted(value):
    assert mutate(gated_job(value))[0]["metadata"]["annotations"][GATED_BY] == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("a", 'must be names of controllers such as example.com/quota, 63 characters at most, not "a"'),
        ("a.b/c,", 'such as example.com/quota, 63 characters at most, not ""'),
        ("A.b/c", 'not "A.b/c"'),
        ("a.b/", 'not "a.b/"'),
        ("a.b/c d", 'not "a.b/c d"'),
        ("a.b/c\x1b[31m", 'not "a.b/c\\x1b[31m"'),
        ("x.y/" + "z" * 60, "63 characters at most"),
        ("a.b/c,d.e/f,a.b/c", "names a controller twice"),
        (("q" * 1000 + ",") * 200, "63 characters at most"),
    ],
)
def test_invalid_controller_names_are_refused(value, message):
    answer = judge(gated_job(value))
    assert not answer["allowed"]
    told = answer["status"]["message"]
    assert told.startswith(f"metadata.annotations[{GATED_BY}]: ")
    assert message in told
    assert len(told) < 300
    assert judge(gated_job(value, parallelism=3), gated_job(value))["allowed"], "what is there locks nothing"


@pytest.mark.parametrize("suspend", [True, False])
@pytest.mark.parametrize(
    ("had", "asks", "has", "warned"),
    [
        ("a.b/c,d.e/f", "d.e/f", "d.e/f", False),
        ("a.b/c,d.e/f", " d.e/f,a.b/c", " d.e/f,a.b/c", False),
        ("a.b/c", None, None, False),
        ("a.b/c", "", "", False),
        (None, None, None, False),
        ("a.b/c", "d.e/f", "a.b/c", True),
        ("a.b/c", "a.b/c,d.e/f", "a.b/c", True),
        ("", "a.b/c", "", True),
        (None, "a.b/c", None, True),
        (None, "no name", None, True),
    ],
)
def test_controller_names_can_only_be_removed_after_the_creation(suspend, had, asks, has, warned):
    stored, warnings = mutate(gated_job(asks, suspend=suspend), gated_job(had, suspend=suspend))
    assert stored["metadata"]["annotations"].get(GATED_BY) == has
    kept = f"metadata.annotations[{GATED_BY}]: controllers cannot be added after the creation; it was kept"
    assert (kept in warnings) is warned


def test_job_that_joins_a_queue_keeps_its_controller_names():
    joined = gated_job("a.b/c")
    assert mutate(joined, make_job(queue="", suspend=True))[0]["metadata"]["annotations"][GATED_BY] == "a.b/c"


def test_annotation_is_ignored_if_the_labels_of_kueue_are_off():
    kinds = all_kinds(kueue_labels=False)
    reviewer = Reviewer(kinds, own_usernames=[])
    response = reviewer.review(make_review(gated_job("no name"), gated_job(None)))["response"]
    patch = json.loads(base64.b64decode(response.get("patch", "")) or b"[]")
    assert jsonpatch.apply_patch(gated_job("no name"), patch)["metadata"]["annotations"][GATED_BY] == "no name"


@pytest.mark.parametrize("framework", ["batch/job", "statefulset", "ray.io/raycluster", "batch.volcano.sh/job"])
@pytest.mark.parametrize(("had", "has"), [(None, "a.b/c"), ("a.b/c", None), ("a.b/c", "a.b/c,d.e/f")])
def test_change_of_the_annotation_alone_matches_the_webhook_for_updates(framework, had, has):
    (kind,) = all_kinds(frameworks=(framework,))
    entries = Registration((kind,), "https://192.0.2.1:1", Scope(("sluice",))).configuration(b"")["webhooks"]
    hook = next(each for each in entries if "UPDATE" in each["rules"][0]["operations"])
    (condition,) = hook["matchConditions"]
    matches = compile_expression(condition["expression"], MATCH_VARIABLES)
    old, new = ({**gated_job(value), "spec": {"template": {}}} for value in (had, has))
    request = {"operation": "UPDATE", "userInfo": {"username": "alice"}}
    assert evaluate(matches, {"object": new, "oldObject": old, "request": request})
    assert not evaluate(matches, {"object": new, "oldObject": new, "request": request})


def test_updates_of_pods_have_no_webhook():
    entries = Registration(tuple(all_kinds(frameworks=("pod",))), "https://192.0.2.1:1", Scope(("sluice",)))
    operations = [each["rules"][0]["operations"] for each in entries.configuration(b"")["webhooks"]]
    assert operations == [["CREATE"]] * len(operations)
