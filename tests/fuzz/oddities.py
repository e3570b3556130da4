"""Strategies for unusual but valid changes of Jobs and pods, all of which the API server accepts.

A change is `{"path": [...], "value": ...}`; the value None removes the field. Paths are those of a Job. A value
`{"$": name}` is replaced by the player with data of the running game, such as the UID of another Job.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Change = dict[str, Any]

_POD = ("spec", "template", "spec")
_FIRST = (*_POD, "containers", "0")
_LONG = "ß" * 5000 + "🐘" * 5000
_TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            "true",
            "false",
            "\x00",
            "a\x00b",
            "\x1b[31mred\x1b[0m",
            "\u202egnp.exe",
            "-1",
            "99999999999999999999",
            _LONG,
        ]
    ),
    st.text(max_size=40),
)
_QUANTITIES = st.sampled_from(
    [
        "0",
        "1",
        "100m",
        "1n",
        "0.5",
        ".5",
        "2.",
        "1e3",
        "1E",
        "1u",
        "1e-9",
        "1Ki",
        "+1",
        "9223372036854775807",
        "9000000000000000",
        "1e18",
        "9223372036854775807n",
        "99999999999999999999",
        "1Ei",
        "0.0000000001",
    ]
)
_RESOURCES = st.sampled_from(
    ["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "hugepages-2Mi", "pods", "example.com/" + "x" * 60]
)
_LABEL_VALUES = st.sampled_from(["", "true", "false", "a", "x" * 63, "1", "0", "-", "main", "high"])
_NUMBERS = st.sampled_from([0, 1, 2, 3, 100, 2_000, 100_000, 2**31 - 1, -1])
_SLUICES_ANNOTATIONS = (
    "sluice.dev/submitted-by",
    "sluice.dev/submitter-groups",
    "sluice.dev/hold",
    "sluice.dev/job-min-parallelism",
    "kueue.x-k8s.io/job-min-parallelism",
    "kueue.x-k8s.io/job-completions-equal-parallelism",
)
_SLUICES_LABELS = (
    "sluice.dev/hold",
    "sluice.dev/priority-class",
    "kueue.x-k8s.io/priority-class",
    "sluice.dev/max-exec-time-seconds",
    "kueue.x-k8s.io/max-exec-time-seconds",
)
QUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "sluice.dev/queue-name")


def change(*path: str, value: st.SearchStrategy[Any]) -> st.SearchStrategy[Change]:
    """Strategy for a change of the field at `path`."""
    return st.fixed_dictionaries({"path": st.just(list(path)), "value": value})


def _resources(kind: str, *container: str) -> st.SearchStrategy[Change]:
    amounts = st.dictionaries(_RESOURCES, _QUANTITIES, min_size=1, max_size=2)
    return change(*container, "resources", kind, value=amounts)


def _container(name: str, **more: Any) -> st.SearchStrategy[Any]:
    resources = st.fixed_dictionaries({"requests": st.dictionaries(_RESOURCES, _QUANTITIES, max_size=2)})
    fields = {"name": st.just(name), "image": st.just("pause"), "resources": resources}
    return st.fixed_dictionaries({**fields, **{key: st.just(value) for key, value in more.items()}})


def owner() -> st.SearchStrategy[Any]:
    reference = st.fixed_dictionaries(
        {
            "apiVersion": st.sampled_from(["batch/v1", "v1", "jobset.x-k8s.io/v1alpha2"]),
            "kind": st.sampled_from(["Job", "Job", "JobSet", "Pod"]),
            "name": st.sampled_from(["one", "two"]),
            "uid": st.sampled_from([{"$": "uid"}, {"$": "uid"}, "00000000-0000-0000-0000-000000000000"]),
            "controller": st.sampled_from([True, True, False]),
        }
    )
    return st.lists(reference, min_size=1, max_size=1)


def _metadata() -> list[st.SearchStrategy[Change]]:
    return [
        change("metadata", "annotations", "note", value=_TEXTS),
        *(change("metadata", "annotations", key, value=_TEXTS | st.none()) for key in _SLUICES_ANNOTATIONS),
        *(change("metadata", "labels", key, value=_LABEL_VALUES | st.none()) for key in _SLUICES_LABELS),
        change("metadata", "finalizers", value=st.sampled_from([["example.com/keep"], ["foregroundDeletion"], []])),
    ]


def _scheduling() -> list[st.SearchStrategy[Change]]:
    pool = st.sampled_from(["main", "spare", "none"])
    return [
        change(*_POD, "nodeSelector", value=st.fixed_dictionaries({"sluice.test/pool": pool}) | st.none()),
        change(*_POD, "nodeSelector", value=st.just({"disk": "ssd"}) | st.none()),
        change(
            *_POD,
            "tolerations",
            value=st.sampled_from([[{"operator": "Exists"}], [{"key": "x", "operator": "Exists"}], [], None]),
        ),
        change(
            *_POD,
            "affinity",
            value=st.sampled_from([_affinity("In", ["main"]), _affinity("In", ["spare"]), _affinity("DoesNotExist")]),
        ),
        change(*_POD, "schedulingGates", value=st.sampled_from([[{"name": "example.com/gate"}], []])),
        change(
            "spec",
            "template",
            "metadata",
            "labels",
            value=st.dictionaries(
                st.sampled_from(["x", "job-name", "batch.kubernetes.io/controller-uid"]), _LABEL_VALUES
            ),
        ),
        change("spec", "template", "metadata", "annotations", "note", value=_TEXTS),
        _resources("requests", *_FIRST),
        _resources("limits", *_FIRST),
    ]


def _affinity(operator: str, values: list[str] | None = None) -> Any:
    expression: dict[str, Any] = {"key": "sluice.test/pool", "operator": operator}
    if values:
        expression["values"] = values
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _counts() -> list[st.SearchStrategy[Change]]:
    return [
        change("spec", "parallelism", value=_NUMBERS),
        change("spec", "parallelism", value=st.integers(1, 8)),
        change("spec", "completions", value=_NUMBERS | st.none()),
        change("spec", "backoffLimit", value=_NUMBERS),
        change("spec", "activeDeadlineSeconds", value=st.sampled_from([1, 5, 2**31 - 1])),
        change("spec", "ttlSecondsAfterFinished", value=st.sampled_from([0, 1, 2**31 - 1])),
        change("spec", "podReplacementPolicy", value=st.sampled_from(["Failed", "TerminatingOrFailed"])),
        change("spec", "manualSelector", value=st.booleans()),
    ]


def of_a_new_pod() -> st.SearchStrategy[Change]:
    """Strategy for a field of a new pod: any field of a Job's template, or an owner."""
    groups = [_metadata(), _scheduling(), _labels(), _classes(), _pods(), _containers(), [_ownership()]]
    return st.sampled_from([st.one_of(group) for group in groups]).flatmap(lambda chosen: chosen).map(_in_a_pod)


def _ownership() -> st.SearchStrategy[Change]:
    return change("metadata", "ownerReferences", value=owner())


def _in_a_pod(found: Change) -> Change:
    path = found["path"]
    return {**found, "path": path[2:] if path[:2] == ["spec", "template"] else path}


def of_a_new_job() -> st.SearchStrategy[Change]:
    """Strategy for a field of a new Job."""
    groups = [_metadata(), _scheduling(), _counts(), _labels(), _once(), _classes(), _pods(), _containers()]
    return st.sampled_from([*(st.one_of(group) for group in groups), way_in()]).flatmap(lambda chosen: chosen)


def way_in() -> st.SearchStrategy[Change]:
    """Strategy for fields that may hide a new Job or its pods: owner references, a manual selector."""
    return _ownership() | change("spec", "$manual", value=st.none())


def note() -> st.SearchStrategy[Change]:
    """Strategy for any text in labels and annotations that Sluice reads, and may quote in messages."""
    annotations = [change("metadata", "annotations", key, value=_TEXTS) for key in _SLUICES_ANNOTATIONS]
    labels = [change("metadata", "labels", key, value=_LABEL_VALUES) for key in _SLUICES_LABELS]
    return st.sampled_from([*annotations, *annotations, *labels]).flatmap(lambda chosen: chosen)


def huge() -> st.SearchStrategy[str]:
    """Strategy for CPUs of one pod of which the sum of a few exceeds 64 bits."""
    return st.sampled_from(["9000000000000000", "4611686018427387904m", "1e18", "9223372036854775807"])


def _labels() -> list[st.SearchStrategy[Change]]:
    return [
        change("metadata", "labels", label, value=st.sampled_from(["main", "side", "nowhere", ""]))
        for label in QUEUE_LABELS
    ]


def _once() -> list[st.SearchStrategy[Change]]:
    """Immutable fields."""
    return [
        change("spec", "completionMode", value=st.sampled_from(["Indexed", "NonIndexed"])),
        change("spec", "managedBy", value=st.sampled_from(["kubernetes.io/job-controller", "example.com/other"])),
        change("spec", "backoffLimitPerIndex", value=st.sampled_from([0, 1, 2**31 - 1])),
    ]


def _classes() -> list[st.SearchStrategy[Change]]:
    return [
        change(*_POD, "runtimeClassName", value=st.sampled_from(["nope", "heavy"])),
        change(*_POD, "priorityClassName", value=st.sampled_from(["nope", "high", "system-node-critical"])),
    ]


def _pods() -> list[st.SearchStrategy[Change]]:
    starts = ["fails", "unready", "unpullable", "unscheduled"]
    note = ("spec", "template", "metadata", "annotations")
    return [
        change(*_POD, "restartPolicy", value=st.sampled_from(["Never", "OnFailure"])),
        change(*_POD, "terminationGracePeriodSeconds", value=st.sampled_from([0, 1, 30, 2**31 - 1])),
        change(*_POD, "schedulerName", value=st.sampled_from(["other", ""])),
        change(*_POD, "nodeName", value=st.just("node-main")),
        change(*note, "sandbox.sluice.dev/exit-code", value=st.just("1")),
        change(*note, "sandbox.sluice.dev/start", value=st.sampled_from(starts)),
    ]


def _containers() -> list[st.SearchStrategy[Change]]:
    amounts = st.dictionaries(st.sampled_from(["cpu", "memory"]), _QUANTITIES, min_size=1)
    beside = _container("beside", restartPolicy="Always")
    return [
        change(*_POD, "overhead", value=st.just({"cpu": "1"})),
        change(*_POD, "initContainers", value=st.lists(_container("first"), min_size=1, max_size=1)),
        change(*_POD, "initContainers", value=st.lists(beside, min_size=1, max_size=1)),
        change(*_POD, "resources", "requests", value=amounts),
    ]


def of_a_change() -> st.SearchStrategy[Change]:
    """Strategy for a change of an existing Job."""
    gate = change("spec", "suspend", value=st.sampled_from([False, True]))
    queues = [
        change("metadata", "labels", label, value=st.sampled_from(["main", "side", "nowhere", "", None]))
        for label in QUEUE_LABELS
    ]
    let_in = st.just({"path": ["$let-in"], "value": None})
    counts = change("spec", "$both", value=st.integers(1, 8))
    others = [st.one_of(group) for group in (queues, _metadata(), _scheduling(), _counts())]
    return st.sampled_from([gate, let_in, _ownership(), counts, *others]).flatmap(lambda chosen: chosen)


def of_a_status() -> st.SearchStrategy[Change]:
    """Strategy for a change of a Job's metadata through its status subresource."""
    queues = [change("metadata", "labels", label, value=st.sampled_from(["side", "", None])) for label in QUEUE_LABELS]
    submitter = change("metadata", "annotations", "sluice.dev/submitted-by", value=st.sampled_from(["mallory", ""]))
    return st.sampled_from([submitter, submitter, *queues]).flatmap(lambda chosen: chosen)


def limit_range() -> st.SearchStrategy[Any]:
    """Strategy for the `limits` of a LimitRange; None: it is deleted."""
    limits = st.sampled_from(
        [
            {"type": "Container", "max": {"cpu": "100m"}},
            {"type": "Container", "min": {"cpu": "64"}},
            {"type": "Container", "defaultRequest": {"memory": "1Gi"}},
            {"type": "Pod", "max": {"cpu": "1"}},
            {"type": "Container", "default": {"cpu": "250m"}},
        ]
    )
    return st.none() | st.lists(limits, min_size=1, max_size=1)
