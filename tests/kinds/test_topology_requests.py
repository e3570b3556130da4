"""Annotations of pod templates that request a placement by topology: what kinds make of them, and what they refuse."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.kinds import all_kinds, frameworks_known
from admission.kinds.base import Conventions
from admission.kinds.job import JobKind
from admission.kinds.limits import NamespaceContext
from admission.kinds.placement import taken_by
from admission.kinds.pod import PodKind
from admission.model.errors import Misconfigured
from admission.model.pod_set_documents import pod_set, pod_set_document
from admission.model.topology import SliceLayer, TopologyRequest

KUEUE = "kueue.x-k8s.io/podset-"
OURS = "sluice.dev/podset-"
JOBS = JobKind(Conventions())


def job(pods: int = 4, **annotations: str) -> dict:
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "a", "uid": "u", "labels": {"sluice.dev/queue-name": "q"}},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }


def jobset(first: tuple[int, dict[str, str]], second: tuple[int, dict[str, str]]) -> dict:
    jobs = [
        {"name": name, "replicas": replicas, "template": {"spec": job(1, **annotations)["spec"]}}
        for name, (replicas, annotations) in (("leader", first), ("workers", second))
    ]
    metadata = {"name": "train", "namespace": "a", "uid": "u", "labels": {"sluice.dev/queue-name": "q"}}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata,
            "spec": {"replicatedJobs": jobs}}  # fmt: skip


LAYERS = [{"topology": "block", "size": 4}, {"topology": "rack", "size": 2}]


@pytest.mark.parametrize("prefix", [KUEUE, OURS])
@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"required-topology": "rack"}, TopologyRequest(required="rack")),
        ({"preferred-topology": "block"}, TopologyRequest(preferred="block")),
        ({"unconstrained-topology": "true"}, TopologyRequest(unconstrained=True)),
        ({"unconstrained-topology": "false"}, None),
        (
            {"preferred-topology": "block", "slice-required-topology": "rack", "slice-size": "2"},
            TopologyRequest(preferred="block", layers=(SliceLayer("rack", 2),)),
        ),
        (
            {"slice-required-topology-constraints": json.dumps(LAYERS)},
            TopologyRequest(layers=(SliceLayer("block", 4), SliceLayer("rack", 2))),
        ),
    ],
)
def test_annotations_of_the_template_are_the_request_of_its_pod_set(prefix, annotations, expected):
    obj = job(**{prefix + name: value for name, value in annotations.items()})
    assert JOBS.faults(obj) == []
    (found,) = JOBS.pod_sets(obj, NamespaceContext())
    assert found.topology == expected
    row = {"name": found.name, "count": found.count, "min_count": None, "spec": pod_set_document(found)}
    assert pod_set(json.loads(json.dumps(row))) == found


TOO_MANY = (
    'must not contain more than one topology annotation: ["kueue.x-k8s.io/podset-required-topology", '
    '"kueue.x-k8s.io/podset-preferred-topology", "kueue.x-k8s.io/podset-unconstrained-topology"]'
)


@pytest.mark.parametrize(
    ("annotations", "annotation", "message"),
    [
        ({"required-topology": "rack", "preferred-topology": "rack"}, "", TOO_MANY),
        ({"required-topology": "a b"}, "required-topology", '"a b" is no name of a node label'),
        ({"unconstrained-topology": "yes"}, "unconstrained-topology", "must be a boolean value"),
        (
            {"slice-required-topology": "rack"},
            "slice-size",
            "must be set when 'kueue.x-k8s.io/podset-slice-required-topology' is specified",
        ),
        (
            {"required-topology": "rack", "slice-size": "2"},
            "slice-size",
            "may not be set when 'kueue.x-k8s.io/podset-slice-required-topology' is not specified",
        ),
        ({"slice-required-topology": "rack", "slice-size": "x"}, "slice-size", "must be a numeric value"),
        ({"slice-required-topology": "rack", "slice-size": "--2"}, "slice-size", "must be a numeric value"),
        ({"slice-required-topology": "rack", "slice-size": "0"}, "slice-size", "must be greater than or equal to 1"),
        (
            {"slice-required-topology": "rack", "slice-size": "5"},
            "slice-size",
            "must not be greater than pod set count 4",
        ),
        ({"slice-required-topology-constraints": "{"}, "slice-required-topology-constraints", "must be a valid JSON"),
        (
            {"slice-required-topology-constraints": "[]"},
            "slice-required-topology-constraints",
            "topology constraints must contain between 1 and 3 entries",
        ),
        (
            {"slice-required-topology-constraints": '[{"topology":"a","size":4},{"topology":"b","size":3}]'},
            "slice-required-topology-constraints",
            "must evenly divide the parent layer size 4",
        ),
        ({"group-name": "a"}, "group-name", "may not be set when neither"),
        ({"group-name": "7", "required-topology": "rack"}, "group-name", "must not be a number"),
    ],
)
def test_contradicting_annotations_are_refused_with_kueues_texts(annotations, annotation, message):
    found = JOBS.faults(job(**{KUEUE + name: value for name, value in annotations.items()}))
    path = "spec.template.metadata.annotations"
    wanted = f"{path}[{KUEUE}{annotation}]" if annotation else path
    matching = [(field, text) for field, text in found if field.startswith(wanted) and message in text]
    assert matching, found
    with pytest.raises(Misconfigured):
        JOBS.pod_sets(job(**{KUEUE + name: value for name, value in annotations.items()}), NamespaceContext())


def test_a_pod_set_group_is_a_leader_and_its_workers_at_one_level():
    kind = all_kinds(frameworks=frameworks_known()).get("jobset.x-k8s.io", "JobSet")
    assert kind is not None
    group, rack = {f"{KUEUE}group-name": "g"}, {f"{KUEUE}required-topology": "rack"}
    block = {f"{KUEUE}required-topology": "block"}
    valid = jobset((1, group | rack), (4, group | rack))
    assert kind.faults(valid) == []
    assert [each.group for each in kind.pod_sets(valid, NamespaceContext())] == ["g", "g"]
    for obj, message in (
        (jobset((1, group | rack), (4, rack)), "can only define groups of exactly 2 pod sets, got: 1 pod set(s)"),
        (jobset((2, group | rack), (4, group | rack)), "at least one pod set of a group must have only 1 replica"),
        (jobset((1, group | rack), (4, group | block)), "must have the same"),
    ):
        assert any(message in text for _, text in kind.faults(obj)), message


def test_a_pod_is_its_own_template():
    pod = {"metadata": {"name": "p", "annotations": {f"{OURS}required-topology": "rack"}}, "spec": {"containers": []}}
    (found,) = PodKind(Conventions()).pod_sets(pod, NamespaceContext())
    assert found.topology == TopologyRequest(required="rack")
    pod["metadata"]["annotations"][f"{KUEUE}preferred-topology"] = "rack"
    ((path, _),) = PodKind(Conventions()).faults(pod)
    assert path == "metadata.annotations"


@pytest.mark.parametrize(("policy", "cpu"), [("Always", 300), (None, 200)])
def test_init_container_that_runs_on_takes_room_beside_the_others(policy, cpu):
    init = {"name": "i", "resources": {"requests": {"cpu": "200m"}}, **({"restartPolicy": policy} if policy else {})}
    main = {"name": "m", "resources": {"requests": {"cpu": "100m"}}}
    found = [
        taken_by(
            {"metadata": {"name": name}, "spec": {"nodeName": "n", "containers": [main], "initContainers": [init]}}
        )
        for name in ("one", "other")
    ]
    assert found == [("n", {"cpu": cpu})] * 2
    assert found[0][1] is found[1][1], "100,000 pods share what they request"


_NAMES = (
    "required-topology",
    "preferred-topology",
    "unconstrained-topology",
    "slice-required-topology",
    "slice-size",
    "slice-required-topology-constraints",
    "group-name",
)
_TEXTS = st.one_of(
    st.sampled_from(
        ("rack", "block", "a/b", "true", "1", "2", "-1", "--1", "+1", "1e0", "0x1", "\u0661", "9" * 30, "")
    ),
    st.sampled_from(
        ("[", "null", "1", "[1]", "[{}]", '[{"topology": 1, "size": "2"}]', '[{"topology": "a", "size": 1e9}]')
    ),
    st.lists(st.fixed_dictionaries({"topology": st.sampled_from("ab"), "size": st.integers(-1, 5)}), max_size=4).map(
        json.dumps
    ),
    st.text(max_size=8),
)


@given(
    st.dictionaries(st.sampled_from(_NAMES), _TEXTS, max_size=4), st.sampled_from(("kueue.x-k8s.io/", "sluice.dev/"))
)
def test_whatever_annotations_say_is_understood_or_has_a_named_fault(annotations, prefix):
    obj = job(**{f"{prefix}podset-{name}": text for name, text in annotations.items()})
    if faults := JOBS.faults(obj):
        assert all(path.startswith("spec.template.metadata.annotations") and message for path, message in faults)
        with pytest.raises(Misconfigured):
            JOBS.pod_sets(obj, NamespaceContext())
    else:
        JOBS.pod_sets(obj, NamespaceContext())
