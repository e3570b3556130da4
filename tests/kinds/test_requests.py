"""Resource requests of pods: golden values, and the order in which Kubernetes applies defaults."""

from __future__ import annotations

import pytest

from admission.kinds.limits import NamespaceContext
from admission.kinds.requests import pod_requests
from admission.model.errors import Misconfigured
from admission.model.quantity import amount

KATA = {
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "160Mi"}},
    "scheduling": {"nodeSelector": {"katacontainers.io/kata-runtime": "true"}},
}
DEFAULTS = {
    "metadata": {"name": "defaults"},
    "spec": {
        "limits": [
            {
                "type": "Container",
                "default": {"cpu": "1", "memory": "1Gi"},
                "defaultRequest": {"cpu": "200m", "memory": "256Mi"},
            }
        ]
    },
}
EMPTY = NamespaceContext()
PATH = "spec.template.spec"


def container(requests=None, limits=None, **rest):
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return {"name": "c", "image": "i", **({"resources": resources} if resources else {}), **rest}


def amounts(**quantities):
    names = {"gpu": "nvidia.com/gpu", "huge": "hugepages-2Mi"}
    return {names.get(key, key): amount(names.get(key, key), value) for key, value in quantities.items()}


SIDECAR = container({"cpu": "100m", "memory": "64Mi"}, restartPolicy="Always")

GOLDEN = {
    # Missing requests are set to limits; the plain init container runs beside the sidecar that was started before it.
    "sidecar and init container": (
        {
            "initContainers": [SIDECAR, container({"cpu": "3", "memory": "128Mi"})],
            "containers": [container(limits={"cpu": "2", "memory": "2Gi"})],
        },
        amounts(cpu="3100m", memory="2112Mi"),
    ),
    "init container before the sidecar": (
        {
            "initContainers": [container({"cpu": "3", "memory": "128Mi"}), SIDECAR],
            "containers": [container(limits={"cpu": "2", "memory": "2Gi"})],
        },
        amounts(cpu="3", memory="2112Mi"),
    ),
    "pod-level resources with overhead": (
        {
            "runtimeClassName": "kata",
            "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "2Gi"}},
            "containers": [container(limits={"nvidia.com/gpu": "1"}), container()],
        },
        amounts(cpu="2250m", memory="1184Mi", gpu=1),
    ),
    "launcher's decimal units": (
        {
            "containers": [
                container(
                    {"cpu": "15900m", "memory": "64512M", "nvidia.com/gpu": "4"},
                    {"cpu": "16000m", "memory": "65536M", "nvidia.com/gpu": "4"},
                )
            ]
        },
        amounts(cpu="15900m", memory=64_512_000_000, gpu=4),
    ),
    "a request of nothing": (
        {"containers": [container({"cpu": "900m", "memory": "0M"}, {"cpu": "1000m", "memory": "1024M"})]},
        amounts(cpu="900m", memory=0),
    ),
    "only some limits": (
        {"containers": [container({"cpu": "2", "memory": "4Gi"}, {"nvidia.com/gpu": "1"})]},
        amounts(cpu="2", memory="4Gi", gpu=1),
    ),
    "two containers": (
        {"containers": [container({"cpu": "1", "memory": "2Gi"}), container({"cpu": "500m", "memory": "512Mi"})]},
        amounts(cpu="1500m", memory="2560Mi"),
    ),
    "a small init container": (
        {
            "initContainers": [container({"cpu": "200m", "memory": "256Mi"})],
            "containers": [container({"cpu": "1", "memory": "1Gi"})],
        },
        amounts(cpu="1", memory="1Gi"),
    ),
    "nothing": ({"containers": [container()]}, {}),
    "sums are rounded up once": (
        {"containers": [container({"cpu": "0.3m"}), container({"cpu": "0.3m"})]},
        {"cpu": 1},
    ),
    "overhead of the template's own": (
        {"overhead": {"cpu": "10m"}, "runtimeClassName": "kata", "containers": [container({"cpu": "1"})]},
        amounts(cpu="1010m"),
    ),
    "pod-level limits where a container requests": (
        {"resources": {"limits": {"cpu": "4", "memory": "2Gi"}}, "containers": [container({"cpu": "1"}), container()]},
        amounts(cpu="1", memory="2Gi"),
    ),
    "pod-level requests alone add nothing for other resources": (
        {"resources": {"requests": {"cpu": "4"}}, "containers": [container({"cpu": "1", "memory": "1Gi"})]},
        amounts(cpu="4", memory="1Gi"),
    ),
    "huge pages": (
        {
            "resources": {"limits": {"cpu": "4"}},
            "containers": [container(limits={"hugepages-2Mi": "64Mi", "cpu": "1"})],
        },
        amounts(cpu="1", huge="64Mi"),
    ),
}


@pytest.mark.parametrize("case", GOLDEN)
def test_pod_requests_match_golden_values(case):
    spec, expected = GOLDEN[case]
    assert pod_requests(spec, NamespaceContext((), [KATA]), path=PATH) == expected


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (None, amounts(cpu="200m", memory="256Mi")),
        # The API server sets the request to the limit before the plugin looks for missing requests.
        ({"limits": {"cpu": "800m"}}, amounts(cpu="800m", memory="256Mi")),
        ({"requests": {"cpu": "1"}}, amounts(cpu="1", memory="256Mi")),
    ],
)
def test_limit_range_defaults_fill_missing_requests(resources, expected):
    spec = {"containers": [{"name": "main", **({"resources": resources} if resources else {})}]}
    assert pod_requests(spec, NamespaceContext([DEFAULTS]), path=PATH) == expected


def test_a_request_above_a_default_limit_names_the_limit_range():
    spec = {"containers": [container({"cpu": "2"})]}
    with pytest.raises(Misconfigured, match=r'containers\[0\].*request of 2 .*limit of 1 that LimitRange "defaults"'):
        pod_requests(spec, NamespaceContext([DEFAULTS]), path=PATH)


def limit_range(name="bounds", kind="Container", **fields):
    return {"metadata": {"name": name}, "spec": {"limits": [{"type": kind, **fields}]}}


def test_limit_range_defaults_are_derived_from_its_min_and_max():
    # default := max, defaultRequest := default, then := min
    context = NamespaceContext([limit_range(max={"cpu": "2"}, min={"memory": "1Mi"})])
    assert pod_requests({"containers": [container()]}, context, path=PATH) == amounts(cpu="2", memory="1Mi")


def test_first_limit_range_by_name_sets_the_default_of_each_resource():
    first = limit_range("a", default={"cpu": "1"}, defaultRequest={"cpu": "100m"})
    second = limit_range("b", default={"cpu": "3"}, defaultRequest={"cpu": "300m", "memory": "1Mi"})
    context = NamespaceContext([second, first])
    assert pod_requests({"containers": [container()]}, context, path=PATH) == amounts(cpu="100m", memory="1Mi")


@pytest.mark.parametrize(
    ("rule", "spec", "message"),
    [
        (limit_range(max={"cpu": "1"}), container({"cpu": "1"}, {"cpu": "2"}), "a limit of at most 1 of cpu"),
        (limit_range(min={"memory": "1Gi"}), container({"memory": "1Mi"}), "at least 1Gi of memory"),
        (limit_range(maxLimitRequestRatio={"cpu": "2"}), container({"cpu": "1"}, {"cpu": "3"}), "at most 2 times"),
        (limit_range(kind="Pod", max={"cpu": "1"}), container({"cpu": "1"}), "has request 1, no limit"),
        (limit_range(kind="Pod", min={"cpu": "2"}), container({"cpu": "1"}), "at least 2 of cpu"),
    ],
)
def test_pod_that_violates_a_limit_range_is_misconfigured(rule, spec, message):
    with pytest.raises(Misconfigured, match=message):
        pod_requests({"containers": [spec]}, NamespaceContext([rule]), path=PATH)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"containers": [container({"cpu": "x"})]}, r'^spec.template.spec.containers\[0\].resources.requests.cpu: "x"'),
        ({"containers": [container({"cpu": "-1"})]}, r"requests.cpu: must not be negative, but is -1"),
        ({"containers": [container({"a.b/gpu": "-1"})]}, r"requests\[a.b/gpu\]"),
        ({"containers": [container({"cpu": "2"}, {"cpu": "1"})]}, r"request of 2 is more than the limit of 1;"),
        ({"initContainers": [container({"cpu": "2"}, {"cpu": "1"})]}, r"initContainers\[0\]"),
        ({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}, r"^spec.template.spec.resources"),
        ({"runtimeClassName": "nope"}, r'runtimeClassName: there is no RuntimeClass "nope"'),
        (
            {"runtimeClassName": "nope", "overhead": {"cpu": "1"}},
            r'runtimeClassName: there is no RuntimeClass "nope"',
        ),
        ({"resourceClaims": [{"name": "gpu"}]}, r"resourceClaims\[0\]: must have either"),
    ],
)
def test_invalid_or_unsupported_pod_resources_are_misconfigured(spec, message):
    with pytest.raises(Misconfigured, match=message):
        pod_requests(spec, EMPTY, path=PATH)


def test_namespace_contexts_are_equal_if_their_relevant_fields_are():
    noise = {"metadata": {**DEFAULTS["metadata"], "resourceVersion": "7"}, "spec": DEFAULTS["spec"]}
    assert NamespaceContext([DEFAULTS], [KATA]) == NamespaceContext([noise], [{**KATA, "handler": "other"}])
    assert hash(NamespaceContext([DEFAULTS])) == hash(NamespaceContext([noise]))
    assert NamespaceContext([DEFAULTS]) != NamespaceContext()
