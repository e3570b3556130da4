"""Requests of pods for devices by claim: an inventory of claims, classes and slices against hand-computed amounts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.kinds import all_kinds
from admission.kinds.children import fitting_pod_sets
from admission.kinds.device_selectors import Device, SelectorError, selector
from admission.kinds.devices import Inventory
from admission.kinds.limits import NamespaceContext
from admission.model.devices import DeviceClassMapping, DeviceRules, DeviceSource
from admission.model.errors import Misconfigured
from admission.model.workload import Admission, ClaimReference, PodSet, PodSetAssignment

DRIVER = "gpu.example.com"
ANY = f'device.driver == "{DRIVER}"'
WHOLE = DeviceRules((DeviceClassMapping("gpu", ("gpu", "big")), DeviceClassMapping("fpga", ("fpga",))))
COUNTERS = DeviceRules(
    (
        DeviceClassMapping("memory", ("mig",), (DeviceSource(DRIVER, "memory", ANY),)),
        DeviceClassMapping("compute", ("mig",), (DeviceSource(DRIVER, "compute", ANY),)),
    )
)
CAPACITY = DeviceRules(
    (DeviceClassMapping("memory", ("gpu",), (DeviceSource(DRIVER, f"{DRIVER}/memory", ANY, True),)),)
)


def exactly(count=1, device_class="gpu", **fields):
    return {"name": "r", "exactly": {"deviceClassName": device_class, "count": count, **fields}}


def all_of(device_class="gpu", **fields):
    return {"name": "r", "exactly": {"deviceClassName": device_class, "allocationMode": "All", **fields}}


def first_of(*alternatives):
    return {"name": "r", "firstAvailable": [each["exactly"] for each in alternatives]}


def where(expression):
    return {"selectors": [{"cel": {"expression": expression}}]}


def device(name, memory="80Gi", **fields):
    attributes = {"type": {"string": "gpu"}, "index": {"int": int(name)}, "driverVersion": {"version": "1.10.0"}}
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}, **fields}


def resource_slice(node, *devices, pool=None, generation=1, slices=1):
    pool = {"name": pool or node, "generation": generation, "resourceSliceCount": slices}
    return {
        "metadata": {"name": node},
        "spec": {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": [*devices]},
    }


def inventory(rules, *requests, slices=(), unread=lambda _: "", **classes):
    """Return an inventory with the template and the claim `c` of these requests, and classes with their specs."""
    found = Inventory(rules, unread)
    for name in ("gpu", "big", "fpga", "mig"):
        found.update("deviceclasses", name, {"metadata": {"name": name}, "spec": classes.get(name, {})})
    spec = {"devices": {"requests": [*requests]}}
    found.update("resourceclaimtemplates", "ns/c", {"metadata": {"name": "c"}, "spec": {"spec": spec}})
    found.update("resourceclaims", "ns/c", {"metadata": {"name": "c"}, "spec": spec})
    for number, each in enumerate(slices):
        found.update("resourceslices", f"{number}", each)
    return found


def pods(*claims, count=2, name="main", **requests):
    """Return a pod set with claims: `t` is a template's name, `=c` a claim's."""
    references = [ClaimReference(each.lstrip("="), is_template=not each.startswith("=")) for each in claims]
    return PodSet(name, count, requests, claims=tuple(references))


def charged(found, *pod_sets):
    return [(dict(each.devices), dict(each.shared)) for each in found.charged(pod_sets, "ns")]


NODES = (resource_slice("a", device("0"), device("1")), resource_slice("b", device("2"), device("3", "40Gi")))


@pytest.mark.parametrize(
    ("request_", "devices"),
    [
        (exactly(), {"gpu": 1}),
        (exactly(3), {"gpu": 3}),
        (exactly(2**63 - 1), {"gpu": 2**63 - 1}),
        (exactly(2, "fpga"), {"fpga": 2}),
        (exactly(5, adminAccess=True), {}),
        (exactly(0), {"gpu": 1}),  # as the API server's default
        (first_of(exactly(2, "fpga"), exactly(4), exactly(1, "fpga")), {"fpga": 2, "gpu": 4}),
        (all_of(), {"gpu": 2}),
        (all_of(**where(f'device.attributes["{DRIVER}"].index > 0')), {"gpu": 2}),
        (all_of(**where(f'device.attributes["{DRIVER}"].index in [0, 2]')), {"gpu": 1}),
        (exactly(3, **where(f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0')), {"gpu": 3}),
        (exactly(9, **where("device.attributes.nothing.of_the_kind")), {"gpu": 9}),  # it does not decide the amount
    ],
)
def test_amounts_of_whole_devices(request_, devices):
    assert charged(inventory(WHOLE, request_, slices=NODES), pods("c")) == [(devices, {})]


def test_requests_of_a_claim_are_added_up():
    found = inventory(WHOLE, exactly(2), exactly(1, "fpga"), exactly(1, "big"))
    assert charged(found, pods("c")) == [({"gpu": 3, "fpga": 1}, {})]


def test_template_counts_for_each_entry_and_named_claim_once_in_the_workload():
    found = inventory(WHOLE, exactly(2))
    assert charged(found, pods("c", "c")) == [({"gpu": 4}, {})]
    assert charged(found, pods("=c", "=c"), pods("=c", name="other")) == [({}, {"gpu": 2}), ({}, {})]
    assert charged(found, pods("=c", count=0), pods("=c", name="other")) == [({}, {}), ({}, {"gpu": 2})]


def test_requests_of_pods_keep_other_resources_and_total_counts_shared_devices_once():
    (each,) = inventory(WHOLE, exactly(2)).charged((pods("c", "=c", count=3, cpu=500),), "ns")
    assert each.requests == {"cpu": 500, "gpu": 2}
    assert each.beside_devices == {"cpu": 500}
    assert each.total(3) == {"cpu": 1500, "gpu": 8}
    assert each.total(0) == {"cpu": 0, "gpu": 0}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (exactly(device_class="nic"), "DeviceClass nic is not mapped in resources.deviceClassMappings"),
        (exactly(5, **where(ANY)), r"insufficient matching devices .* gpu: 4 device\(s\) match in the cluster but 5"),
        (all_of(**where("false")), "allocationMode All: no device in the cluster matches DeviceClass gpu"),
        (all_of(**where("device.(")), "compilation failed"),
        (all_of(**where("1")), "must evaluate to bool"),
        (exactly(-1), "count: must be greater than zero, but is -1"),
        (exactly("x"), "count: must be greater than zero, but is x"),
        (exactly(allocationMode="Some"), "unsupported allocation mode: Some"),
        (first_of(exactly(5, **where(ANY)), exactly(6, **where(ANY))), "4 device.* but 5 requested"),
    ],
)
def test_claims_that_cannot_be_counted(request_, message):
    with pytest.raises(Misconfigured, match=message):
        charged(inventory(WHOLE, request_, slices=NODES), pods("c"))


def test_alternatives_without_enough_devices_are_out():
    found = inventory(WHOLE, first_of(exactly(9, **where(ANY)), exactly(2, "fpga")), slices=NODES)
    assert charged(found, pods("c")) == [({"fpga": 2}, {})]


def test_requests_of_a_claim_do_not_share_devices():
    found = inventory(WHOLE, exactly(3, **where(ANY)), exactly(2, **where(ANY)), slices=NODES)
    with pytest.raises(Misconfigured, match=r"1 device\(s\) match in the cluster but 2 requested"):
        charged(found, pods("c"))


def test_selectors_of_the_class_count_as_well():
    found = inventory(WHOLE, all_of(), slices=NODES, gpu=where(f'device.attributes["{DRIVER}"].index == 3'))
    assert charged(found, pods("c")) == [({"gpu": 1}, {})]


def consuming(memory, compute):
    counters = {"memory": {"value": memory}, "compute": {"value": compute}}
    return {"consumesCounters": [{"counterSet": "s", "counters": counters}]}


PARTS = (resource_slice("a", device("0", **consuming("10Gi", "1")), device("1", **consuming("20Gi", "2"))),)


def test_partitions_count_by_the_largest_counter_of_the_devices_that_match():
    small = where(f'device.attributes["{DRIVER}"].index == 0')
    gi = 2**30
    assert charged(inventory(COUNTERS, exactly(2, "mig"), slices=PARTS), pods("c")) == [
        ({"memory": 40 * gi, "compute": 4}, {})
    ]
    assert charged(inventory(COUNTERS, exactly(1, "mig", **small), slices=PARTS), pods("c")) == [
        ({"memory": 10 * gi, "compute": 1}, {})
    ]
    with pytest.raises(Misconfigured, match=r"counter driver gpu.example.com: 1 device\(s\) match but 2 requested"):
        charged(inventory(COUNTERS, exactly(2, "mig", **small), slices=PARTS), pods("c"))
    with pytest.raises(Misconfigured, match='no consumesCounters entry for counter "memory"'):
        charged(inventory(COUNTERS, exactly(1, "mig"), slices=NODES), pods("c"))


def test_incomplete_pools_and_old_generations_do_not_count():
    old = resource_slice("a", device("0", **consuming("80Gi", "9")), pool="p", generation=1)
    half = resource_slice("b", device("0", **consuming("10Gi", "1")), pool="p", generation=2, slices=2)
    other = resource_slice("c", device("1", **consuming("10Gi", "1")), pool="p", generation=2, slices=2)
    found = inventory(COUNTERS, exactly(1, "mig"), slices=(old, half))
    with pytest.raises(Misconfigured, match="0 device"):
        charged(found, pods("c"))
    assert found.update("resourceslices", "2", other).everything
    assert charged(found, pods("c")) == [({"memory": 10 * 2**30, "compute": 1}, {})]


@pytest.mark.parametrize(
    ("policy", "asked", "amount"),
    [
        (None, None, 80),
        (None, "10Gi", 10),
        ({"default": "5Gi"}, None, 5),
        ({"default": "5Gi", "validValues": ["5Gi", "10Gi", "20Gi"]}, "6Gi", 10),
        ({"validRange": {"min": "4Gi", "step": "3Gi", "max": "40Gi"}}, "5Gi", 7),
        ({"validRange": {"min": "4Gi"}}, "1Gi", 4),
        ({"validRange": {"min": "4Gi", "step": "3Gi", "max": "40Gi"}}, "41Gi", None),
        ({"validValues": ["5Gi"]}, "6Gi", None),
        (None, "-1Gi", 0),
    ],
)
def test_capacity_counts_as_the_policy_of_the_device_rounds_it(policy, asked, amount):
    dimension = {"value": "80Gi", **({"requestPolicy": policy} if policy else {})}
    slices = (resource_slice("a", {**device("0"), "capacity": {"memory": dimension}}, device("1", "1Gi")),)
    slices[0]["spec"]["devices"][1]["capacity"] = {}
    capacity = {"capacity": {"requests": {f"{DRIVER}/memory": asked}}} if asked else {}
    found = inventory(CAPACITY, exactly(2, **capacity), slices=slices)
    if amount is None:
        with pytest.raises(Misconfigured, match="cannot be satisfied by any matched device's RequestPolicy"):
            charged(found, pods("c"))
        return
    assert charged(found, pods("c")) == [({"memory": 2 * amount * 2**30}, {})]
    (mapping,) = CAPACITY.mappings
    short = replace(mapping, sources=tuple(replace(each, name="memory") for each in mapping.sources))
    asked_shortly = {"capacity": {"requests": {"memory": asked}}} if asked else {}
    found = inventory(DeviceRules((short,)), exactly(2, **asked_shortly), slices=slices)
    assert charged(found, pods("c")) == [({"memory": 2 * amount * 2**30}, {})]


def test_extended_resource_of_a_class_counts_as_its_devices():
    found = inventory(WHOLE, gpu={"extendedResourceName": "example.com/gpu"}, mig={"extendedResourceName": "a.b/mig"})
    assert charged(found, pods(**{"example.com/gpu": 2, "cpu": 5}))[0] == ({"gpu": 2}, {})
    (each,) = found.charged((pods(**{"example.com/gpu": 2, "cpu": 5}),), "ns")
    assert each.requests == {"cpu": 5, "gpu": 2}
    assert charged(found, pods(**{"deviceclass.resource.kubernetes.io/big": 1}))[0] == ({"gpu": 1}, {})
    assert charged(found, pods(**{"a.b/mig": 1}))[0] == ({"a.b/mig": 1}, {})
    assert charged(found, pods("c", **{"example.com/gpu": 2}, cpu=1)) == [({"gpu": 2}, {})]


def test_newest_class_backs_an_extended_resource():
    found = inventory(WHOLE)
    for name, created in (("big", "2026-01-01"), ("gpu", "2026-01-02"), ("fpga", "2026-01-02")):
        metadata = {"name": name, "creationTimestamp": f"{created}T00:00:00Z"}
        found.update("deviceclasses", name, {"metadata": metadata, "spec": {"extendedResourceName": "a.b/x"}})
    assert charged(found, pods(**{"a.b/x": 1}))[0] == ({"fpga": 1}, {})
    found.update("deviceclasses", "fpga", None)
    assert charged(found, pods(**{"a.b/x": 1}))[0] == ({"gpu": 1}, {})


def test_extended_resource_of_a_class_with_sources_is_refused():
    found = inventory(COUNTERS, mig={"extendedResourceName": "a.b/mig"})
    with pytest.raises(Misconfigured, match=r"a\.b/mig resolves to DeviceClass mig, whose quota has sources"):
        charged(found, pods(**{"a.b/mig": 1}))


def test_without_a_mapping_claims_are_refused_or_do_not_count():
    plain = (pods("c", **{"deviceclass.resource.kubernetes.io/gpu": 1}),)
    with pytest.raises(Misconfigured, match=r"has resourceClaims, and the setting resources\.deviceClassMappings"):
        inventory(DeviceRules(), exactly()).charged(plain, "ns")
    assert inventory(DeviceRules(ignore_unmapped=True), exactly()).charged(plain, "ns") is plain
    ignoring = DeviceRules(WHOLE.mappings, ignore_unmapped=True)
    assert charged(inventory(ignoring, exactly(2), exactly(device_class="nic")), pods("c")) == [({"gpu": 2}, {})]


def test_claims_of_another_namespace_and_those_made_for_pods_do_not_count():
    found = inventory(WHOLE, exactly())
    owner = {"kind": "Pod", "controller": True}
    made = {"metadata": {"name": "made", "ownerReferences": [owner]}, "spec": {"devices": {}}}
    assert not found.update("resourceclaims", "ns/made", made).claims
    for pod_set, namespace in ((pods("c"), "other"), (pods("ns/c"), "ns"), (pods("=made"), "ns")):
        with pytest.raises(Misconfigured, match="does not exist in namespace"):
            found.charged((pod_set,), namespace)


def test_what_cannot_be_read_is_told_instead_of_missing():
    unread = {"resourceclaimtemplates": "not permitted"}
    found = Inventory(WHOLE, lambda plural: unread.get(plural, ""))
    with pytest.raises(Misconfigured, match="ResourceClaimTemplate c cannot be read: not permitted"):
        found.charged((pods("c"),), "ns")
    assert found.charged((pods(cpu=1),), "ns")[0].requests == {"cpu": 1}


def test_change_names_the_claims_whose_content_is_another():
    found = inventory(WHOLE, exactly())
    spec = {"devices": {"requests": [exactly()]}}
    same = {"metadata": {"name": "c", "resourceVersion": "9"}, "spec": {"spec": spec}}
    assert not found.update("resourceclaimtemplates", "ns/c", same).claims
    (claimed,) = found.update("resourceclaimtemplates", "ns/c", None).claims
    assert claimed == ("ns", ("c", True))


def test_admission_shows_whether_claims_request_more_than_is_held():
    def admitted(**usage):
        return Admission("cq", (PodSetAssignment("main", dict.fromkeys(usage, "default"), usage, 2),))

    found = inventory(WHOLE, exactly())
    pod_sets = found.charged((pods("=c", "c"),), "ns")
    assert found.more(pod_sets, "ns", admitted(gpu=3)) == ""
    for plural, spec in (("resourceclaims", {}), ("resourceclaimtemplates", {"spec": {}})):
        (spec.get("spec", spec))["devices"] = {"requests": [exactly(2)]}
        found.update(plural, "ns/c", {"metadata": {}, "spec": spec})
        assert found.more(pod_sets, "ns", admitted(gpu=3)) == "gpu"
    assert found.more(pod_sets, "ns", admitted(gpu=6)) == ""
    taken_over = (pods("=c", "c"),)
    assert found.more(taken_over, "ns", admitted(gpu=6)) == ""
    assert found.more(taken_over, "ns", admitted(gpu=5)) == "gpu"
    found.update("resourceclaims", "ns/c", None)
    assert found.more(pod_sets, "ns", admitted(gpu=3)) == ""


def test_pod_of_an_owner_has_no_claims_beyond_those_of_its_pod_set():
    (kind,) = (kind for kind in all_kinds(frameworks=("pod",)) if kind.kind == "Pod")
    limits = [pods("c", "c", "=d", name="workers", cpu=1000)]

    def fits(*claims):
        entries = [
            {
                "name": f"n{number}",
                f"resourceClaim{'Name' if each.startswith('=') else 'TemplateName'}": each.lstrip("="),
            }
            for number, each in enumerate(claims)
        ]
        pod = {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": [], "resourceClaims": entries}}
        return bool(fitting_pod_sets(limits, kind, pod, NamespaceContext()))

    assert fits()
    assert fits("c", "=d", "c")
    assert not fits("c", "c", "c")
    assert not fits("d")
    assert not fits("=c")


def test_expressions_are_evaluated_within_a_budget_and_remembered():
    slices = [resource_slice(f"n{number}", *(device(str(each)) for each in range(100))) for number in range(100)]
    found = inventory(WHOLE, all_of(**where(f'device.attributes["{DRIVER}"].index < 50')), slices=slices)
    with pytest.raises(Misconfigured, match="its selectors are evaluated in a moment, after those of others"):
        charged(found, pods("c"))
    assert found.refill()
    assert charged(found, pods("c")) == [({"gpu": 50}, {})]
    assert charged(found, pods("c", name="other")) == [({"gpu": 50}, {})]


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        (ANY, True),
        (f'device.attributes["{DRIVER}"].driverVersion.compareTo(semver("1.9.9")) > 0', True),
        (f'device.attributes["{DRIVER}"].driverVersion.isLessThan(semver("1.10.0-rc.1"))', False),
        (f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("79Gi"))', True),
        ('"x" in device.attributes["other.example.com"]', False),
        (f'has(device.attributes["{DRIVER}"].model)', False),
        (f'device.attributes["{DRIVER}"].type.lowerAscii() == "gpu"', True),
        (f'["gpu"].exists(each, each == device.attributes["{DRIVER}"].type)', True),
    ],
)
def test_selectors(expression, result):
    assert selector(expression).matches(Device(DRIVER, "n", device("0"))) is result


@pytest.mark.parametrize(
    "expression",
    [
        f'device.attributes["{DRIVER}"].model == "x"',
        "device",
        f'device.attributes["{DRIVER}"].type.compareTo(quantity("1")) > 0',
        "[1].all(a, [1].all(b, true))",
        " " * 20_000 + "true",
    ],
)
def test_selectors_that_fail(expression):
    with pytest.raises(SelectorError):
        selector(expression).matches(Device(DRIVER, "n", device("0")))
