"""The sandbox's pure parts: quantities, selectors, patches, schemas."""

import pytest

from admission.sandbox import ApiError
from admission.sandbox.bodies import duplicate_fields
from admission.sandbox.patch import json_patch, merge_patch, strategic_merge
from admission.sandbox.schema import DecodeError, Schema, canonical_quantity, struct_of
from admission.sandbox.selectors import parse_label_selector


@pytest.mark.parametrize(
    ("given", "canonical"),
    [("1", "1"), ("1000m", "1"), ("1500m", "1500m"), ("0.5", "500m"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"),
     ("1000", "1k"), ("2000k", "2M"), ("100", "100"), ("0", "0"), ("1e3", "1e3"), ("0.1Ki", "103"), ("1n", "1n")],
)  # fmt: skip
def test_quantities_come_back_in_their_canonical_form(given, canonical):
    assert canonical_quantity(given) == canonical


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ("a=b", {"a": "b"}, True),
        ("a==b,c!=d", {"a": "b", "c": "e"}, True),
        ("c!=d", {}, True),
        ("a in (b, c)", {"a": "c"}, True),
        ("a notin (b)", {"a": "b"}, False),
        ("a", {"a": ""}, True),
        ("!a", {"a": "b"}, False),
        ("example.com/x in (1),b", {"example.com/x": "1", "b": "2"}, True),
    ],
)
def test_label_selectors_select(selector, labels, selected):
    assert all(requirement.holds(labels) for requirement in parse_label_selector(selector)) is selected


@pytest.mark.parametrize("selector", ["a in b", "a=(b)", "=b", "a=b=c", "a b", "a=b,,c"])
def test_malformed_label_selectors_are_refused(selector):
    with pytest.raises(ApiError, match="unable to parse requirement"):
        parse_label_selector(selector)


def test_patches_share_what_they_do_not_touch():
    original = {"a": {"deep": 1}, "b": {"c": [{"d": 1}, {"d": 2}]}}
    merged = merge_patch(original, {"b": {"x": 1}})
    patched = json_patch(original, [{"op": "replace", "path": "/b/c/1/d", "value": 3}])
    assert merged["a"] is original["a"]
    assert merged["b"]["c"] is original["b"]["c"]
    assert patched["a"] is original["a"]
    assert patched["b"]["c"][0] is original["b"]["c"][0]
    assert original == {"a": {"deep": 1}, "b": {"c": [{"d": 1}, {"d": 2}]}}


def test_a_strategic_merge_patch_orders_lists_as_it_is_told():
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
            "containers": [{"name": "b", "image": "new"}],
        }
    }
    pod = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}}
    merged = strategic_merge(pod, patch, struct_of("V1Pod"))
    assert merged["spec"]["containers"] == [{"name": "b", "image": "new"}, {"name": "a", "image": "1"}]


def test_decoding_drops_what_is_unknown_or_empty_and_says_so():
    unknown = []
    decoded = Schema("V1ConfigMap").decode(
        {"metadata": {"name": "a", "labels": {}, "odd": 1}, "data": None, "immutable": False}, None, unknown
    )
    assert decoded == {"metadata": {"name": "a"}, "immutable": False}
    assert unknown == ["metadata.odd"]


def test_decoding_refuses_a_wrong_type_with_its_path():
    with pytest.raises(DecodeError, match=r"spec\.parallelism: cannot unmarshal string"):
        Schema("V1Job").decode({"metadata": {}, "spec": {"parallelism": "2"}}, None, [])


def test_fields_named_twice_are_found_where_they_are():
    raw = b'{"a": {"b": 1, "b": 2}, "c": [{"d": 1}, {"d": 1, "d": 2}]}'
    assert duplicate_fields(raw, {"a": {"b": 2}, "c": [{"d": 1}, {"d": 2}]}) == ["a.b", "c[1].d"]
    assert duplicate_fields(b'{"a": "say \\"b\\""}', {"a": 'say "b"'}) == []
