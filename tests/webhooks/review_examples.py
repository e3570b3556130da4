"""Example Jobs, AdmissionReviews of them, and the responses of the webhook."""

from __future__ import annotations

import base64
import copy
import json

import jsonpatch

from admission.kinds import all_kinds
from webhooks.review import Reviewer

SLUICE = "system:serviceaccount:sluice:sluice"
QUEUES = {("team-a", "main"), ("team-a", "other")}


class RecordingReviewer(Reviewer):
    """Reviewer that records the warnings of each review in `warned`."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.warned = []

    def review(self, review, *, managed=False):
        answer = super().review(review, managed=managed)
        self.warned.append(answer["response"].get("warnings", []))
        return answer


def make_reviewer(**options):
    return Reviewer(
        all_kinds(), own_usernames=[SLUICE], queue_exists=lambda namespace, name: (namespace, name) in QUEUES, **options
    )


REVIEWER = make_reviewer()


def make_job(*, queue="main", labels=None, annotations=None, **spec):
    metadata = {"name": "train"}
    if labels is not None or queue:
        metadata["labels"] = labels if labels is not None else {"sluice.dev/queue-name": queue}
    if annotations is not None:
        metadata["annotations"] = annotations
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    return {"metadata": metadata, "spec": {"parallelism": 2, "template": template, **spec}}


def make_review(new, old=None, *, user="alice", **request):
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "r-1",
            "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
            "operation": "CREATE" if old is None else "UPDATE",
            "namespace": "team-a",
            "userInfo": {"username": user},
            "object": new,
            "oldObject": old,
            **request,
        },
    }


def mutate(new, old=None, **request):
    """Return the object as it is stored after its review, and the warnings."""
    review = make_review(new, old, **request)
    sent = copy.deepcopy(review)
    answer = REVIEWER.review(review)
    assert review == sent
    response = answer["response"]
    assert (answer["kind"], response["uid"], response["allowed"]) == ("AdmissionReview", "r-1", True)
    operations = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    assert ("patchType" in response) == bool(operations)
    stored = jsonpatch.apply_patch(new, operations)
    if old is None or request.get("user") != SLUICE:
        # Reinvocation: an object that was mutated is not mutated again.
        assert "patch" not in REVIEWER.review(make_review(stored, old, **request))["response"]
    return stored, response.get("warnings", [])


def judge(new, old=None, **request):
    """Return the response without the patch."""
    response = REVIEWER.review(make_review(new, old, **request))["response"]
    return {key: value for key, value in response.items() if not key.startswith("patch")}


def submitter(job):
    return job["metadata"].get("annotations", {}).get("sluice.dev/submitted-by")


WAITING = make_job(suspend=True, annotations={"sluice.dev/submitted-by": "alice"})
RUNNING = make_job(suspend=False, annotations={"sluice.dev/submitted-by": "alice"})
