"""Objects of dynamic resource allocation: defaults and validation as in the API server, claims of pods, allocation."""

from __future__ import annotations

import pytest

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.sandbox import Sandbox

TEMPLATE = "resourceclaimtemplates"


def claim(*requests, name="c"):
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [*requests]}}}


def exactly(name="r", **fields):
    return {"name": name, "exactly": {"deviceClassName": "gpu", **fields}}


def selecting(expression):
    return {"selectors": [{"cel": {"expression": expression}}]}


@pytest.fixture
async def admin():
    async with Sandbox(speed=60) as sandbox:
        yield sandbox.local("admin")


async def test_defaults_of_a_claim(admin):
    alternatives = {"name": "s", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]}
    every = exactly("t", allocationMode="All")
    made = await admin.create("resourceclaims", "default", claim(exactly(), alternatives, every))
    one, two, three = made["spec"]["devices"]["requests"]
    assert one["exactly"] == {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    assert two["firstAvailable"][0] == {
        "name": "a",
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
    }
    assert three["exactly"] == {"deviceClassName": "gpu", "allocationMode": "All"}


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([{"name": "r"}], "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable`"),
        ([exactly("R")], "spec.devices.requests[0].name: Invalid value"),
        ([exactly(), exactly()], 'spec.devices.requests[1].name: Duplicate value: "r"'),
        ([exactly(str(n)) for n in range(33)], "spec.devices.requests: Too many: 33: must have at most 32 items"),
        ([exactly(deviceClassName="")], "spec.devices.requests[0].exactly.deviceClassName: Required value"),
        ([exactly(count=-1)], "exactly.count: Invalid value: -1: must be greater than zero"),
        ([exactly(allocationMode="All", count=1)], "must not be specified when allocationMode is 'All'"),
        ([exactly(allocationMode="Some")], 'allocationMode: Unsupported value: "Some"'),
        ([exactly(**selecting("device.("))], "exactly.selectors[0].cel.expression: Invalid value"),
        ([exactly(**selecting("nothing"))], "undeclared reference to 'nothing'"),
        ([exactly(**selecting("x" * 20_000))], "Too long: may not be more than 10240 bytes"),
        ([exactly(adminAccess=True)], "admin access to devices requires the `resource.kubernetes.io/admin-access"),
    ],
)
async def test_invalid_claims_are_refused(admin, requests, message):
    with pytest.raises(ApiError) as raised:
        await admin.create("resourceclaims", "default", claim(*requests))
    assert message in str(raised.value)
    template = {"metadata": {"name": "c"}, "spec": {"spec": claim(*requests)["spec"]}}
    with pytest.raises(ApiError):
        await admin.create(TEMPLATE, "default", template)


async def test_claims_and_templates_cannot_be_changed(admin):
    await admin.create("resourceclaims", "default", claim(exactly()))
    await admin.create(TEMPLATE, "default", {"metadata": {"name": "c"}, "spec": {"spec": claim(exactly())["spec"]}})
    for plural, changed in (
        ("resourceclaims", {"spec": {"devices": {"requests": [exactly(count=2)]}}}),
        (TEMPLATE, {"spec": {"spec": {"devices": {"requests": [exactly(count=2)]}}}}),
    ):
        with pytest.raises(ApiError, match="field is immutable"):
            await admin.patch(plural, "default", "c", changed)


async def test_admin_access_needs_the_label_of_the_namespace(admin):
    label = {"resource.kubernetes.io/admin-access": "true"}
    await admin.create("namespaces", "", {"metadata": {"name": "monitoring", "labels": label}})
    assert await admin.create("resourceclaims", "monitoring", claim(exactly(adminAccess=True)))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"nodeName": None}, "spec: Required value: exactly one of `nodeName`"),
        ({"pool": {"name": "p", "resourceSliceCount": 0}}, "spec.pool.resourceSliceCount: Invalid value"),
        ({"devices": [{"name": "a"}, {"name": "a"}]}, 'spec.devices[1].name: Duplicate value: "a"'),
        ({"devices": [{"name": "a", "attributes": {"x": {}}}]}, "exactly one value must be specified"),
        ({"devices": [{"name": f"d{n}"} for n in range(129)]}, "must have at most 128 items"),
    ],
)
async def test_invalid_slices_are_refused(admin, spec, message):
    valid = {"driver": "d.example", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}
    with pytest.raises(ApiError) as raised:
        await admin.create("resourceslices", "", {"metadata": {"name": "s"}, "spec": {**valid, **spec}})
    assert message in str(raised.value)


async def test_claims_of_a_pod_must_be_named_and_used_by_their_names(admin):
    def pod(claims, used="c"):
        container = {"name": "main", "image": "pause", "resources": {"claims": [{"name": used}]}}
        return {"metadata": {"name": "p"}, "spec": {"containers": [container], "resourceClaims": claims}}

    for claims, message in (
        ([{"name": "c"}], "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
        ([{"name": "c", "resourceClaimName": "a", "resourceClaimTemplateName": "b"}], "at most one of"),
        ([{"name": "x", "resourceClaimName": "a"}], 'Not found: "c": must be one of the names in pod.spec.resourceCl'),
    ):
        with pytest.raises(ApiError) as raised:
            await admin.create("pods", "default", pod(claims))
        assert message in str(raised.value)
    assert await admin.create("pods", "default", pod([{"name": "c", "resourceClaimName": "a"}]))


async def test_older_kubernetes_serves_no_claims():
    async with Sandbox(minor=33) as sandbox:
        assert "resourceclaims" not in sandbox.local("admin").plurals()
