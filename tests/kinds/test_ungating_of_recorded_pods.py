"""The PATCH that ungates a pod, on pods of a real control plane: it is the one that its API server accepted."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest

from admission.apimachinery.patches import json_patch
from admission.kinds.placement import seen_pod, ungate_patch
from admission.kinds.topology import GATE, POD_SET, REQUIRED_KEY

LIVES = Path(__file__).parents[3] / "shared" / "apiserver" / "lives"
NAMES = ("deployment-gated", "statefulset-gated")

pytestmark = pytest.mark.skipif(not LIVES.exists(), reason="the recorded lives are not here")


def entries(name):
    return [json.loads(line) for line in (LIVES / f"{name}.jsonl").read_text().splitlines()[1:]]


def placed(pod):
    """The recorded pod as one of a workload that is placed: its gate is that of topology."""
    made = deepcopy(pod)
    metadata = made["metadata"]
    metadata.setdefault("labels", {})["batch.kubernetes.io/controller-uid"] = "w"
    metadata.setdefault("annotations", {}).update({POD_SET: "main", REQUIRED_KEY: "rack"})
    made["spec"]["schedulingGates"] = [{"name": GATE}, *made["spec"]["schedulingGates"][1:]]
    return made


@pytest.mark.parametrize("name", NAMES)
def test_ungating_makes_of_a_recorded_pod_what_the_real_server_made_of_it(name):
    found = entries(name)
    gated: dict[str, dict] = {}
    ungated = 0
    for at, entry in enumerate(found):
        if entry.get("plural") == "pods" and entry["object"]["spec"].get("schedulingGates"):
            gated[entry["object"]["metadata"]["name"]] = entry["object"]
        request = entry.get("request") or {}
        pod = gated.pop(request.get("path", "").rpartition("/")[2], None)
        if request.get("method") != "PATCH" or pod is None:
            continue
        before = placed(pod)
        (added, removed) = request["body"]
        patch = ungate_patch(seen_pod(before), added["value"])
        # The same two operations as recorded, after tests of what they are based on.
        assert [operation["op"] for operation in patch] == ["test", "test", "add", removed["op"]]
        assert [operation["path"] for operation in patch[2:]] == [added["path"], removed["path"]]
        after = json_patch(before, patch)
        uid = pod["metadata"]["uid"]
        changes = (other["object"] for other in found[at - 2 :] if other.get("plural") == "pods")
        real = next(
            each for each in changes if each["metadata"]["uid"] == uid and "schedulingGates" not in each["spec"]
        )
        assert after["spec"]["nodeSelector"] == real["spec"]["nodeSelector"]
        assert "schedulingGates" not in after["spec"]
        seen = [each["object"] for each in found if each.get("plural") == "pods"]
        nodes = [each["spec"].get("nodeName") for each in seen if each["metadata"]["uid"] == uid]
        assert nodes[-1], "it was bound to a node with these labels"
        ungated += 1
    assert ungated >= 5


def test_a_selector_of_a_gated_pod_grows_and_other_gates_stay():
    """Recorded: what a gated pod selects may only be added to, and gates may only be taken away."""
    (pod,) = [entry["object"] for entry in entries("pod-gates") if entry.get("seen") == "ADDED"][:1]
    before = placed(pod)
    after = json_patch(before, ungate_patch(seen_pod(before), {"rack": "r1"}))
    assert after["spec"]["nodeSelector"] == {**pod["spec"]["nodeSelector"], "rack": "r1"}
    assert after["spec"]["schedulingGates"] == pod["spec"]["schedulingGates"][1:]
