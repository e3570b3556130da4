"""Selectors, patches, field ownership, content negotiation and ages, without a server."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from admission.apimachinery.accept import PARTIAL_LIST, TABLE, Format, negotiate
from admission.apimachinery.bodies import duplicate_fields
from admission.apimachinery.errors import InvalidSelector, NotAcceptable, PatchFailed
from admission.apimachinery.ownership import (
    FieldWriter,
    applied,
    conflict_causes,
    conflicts,
    from_fields_v1,
    updated,
    without,
)
from admission.apimachinery.patches import json_patch, merge_patch
from admission.apimachinery.selectors import parse_field_selector, parse_label_selector
from admission.apimachinery.tables import duration


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
def test_label_selector_matches_labels(selector, labels, selected):
    assert all(requirement.holds(labels) for requirement in parse_label_selector(selector)) is selected


@pytest.mark.parametrize("selector", ["a in b", "a=(b)", "=b", "a=b=c", "a b", "a=b,,c"])
def test_malformed_label_selectors_are_refused(selector):
    with pytest.raises(InvalidSelector, match="unable to parse requirement"):
        parse_label_selector(selector)


def test_patches_share_unchanged_parts_with_the_original():
    original = {"a": {"deep": 1}, "b": {"c": [{"d": 1}, {"d": 2}]}}
    merged = merge_patch(original, {"b": {"x": 1}})
    patched = json_patch(original, [{"op": "replace", "path": "/b/c/1/d", "value": 3}])
    assert merged["a"] is original["a"]
    assert merged["b"]["c"] is original["b"]["c"]
    assert patched["a"] is original["a"]
    assert patched["b"]["c"][0] is original["b"]["c"][0]
    assert original == {"a": {"deep": 1}, "b": {"c": [{"d": 1}, {"d": 2}]}}


def test_duplicate_fields_are_reported_with_their_path():
    raw = b'{"a": {"b": 1, "b": 2}, "c": [{"d": 1}, {"d": 1, "d": 2}]}'
    assert duplicate_fields(raw, {"a": {"b": 2}, "c": [{"d": 1}, {"d": 2}]}) == ["a.b", "c[1].d"]
    assert duplicate_fields(b'{"a": "say \\"b\\""}', {"a": 'say "b"'}) == []


def test_field_selector_is_parsed_and_unknown_fields_are_refused():
    terms = parse_field_selector("metadata.name=a, spec.x != b\\,c", ("metadata.name", "spec.x"))
    assert [(term.path, term.equal, term.value) for term in terms] == [
        ("metadata.name", True, "a"),
        ("spec.x", False, "b,c"),
    ]
    with pytest.raises(InvalidSelector, match=r"field label not supported: spec\.y; supported are metadata\.name"):
        parse_field_selector("spec.y=1", ("metadata.name",))
    with pytest.raises(InvalidSelector, match="can't understand 'x'"):
        parse_field_selector("x", ("x",))


@pytest.mark.parametrize(
    "operations",
    [
        {}, ["x"], [{"op": "add"}], [{"op": "add", "path": 3, "value": 1}], [{"op": "add", "path": "/a"}],
        [{"op": "remove", "path": "/no"}], [{"op": "remove", "path": "/list/-1"}],
        [{"op": "remove", "path": "/list/7"}],
        [{"op": "add", "path": "/list/x", "value": 1}], [{"op": "add", "path": "no", "value": 1}],
        [{"op": "test", "path": "/a", "value": 2}], [{"op": "copy", "path": "/b"}], [{"op": "odd", "path": "/a"}],
        [{"op": "remove", "path": ""}], [{"op": "add", "path": "/a/b", "value": 1}],
        [{"op": "test", "path": "/a", "value": 1}] * 10_001,
    ],
)  # fmt: skip
def test_invalid_json_patch_operation_raises_patch_failed(operations):
    with pytest.raises(PatchFailed):
        json_patch({"a": 1, "list": [1, 2]}, operations)


def test_copied_and_moved_values_of_a_json_patch_are_independent():
    original = {"a": {"x": [1]}, "b": {}}
    operations = [
        {"op": "add", "path": "/a/x/-", "value": 2},
        {"op": "copy", "from": "/a", "path": "/b/copy"},
        {"op": "add", "path": "/a/x/-", "value": 3},
        {"op": "add", "path": "/b/copy/x/0", "value": 0},
        {"op": "move", "from": "/a", "path": "/c"},
        {"op": "remove", "path": "/c/x/0"},
    ]
    assert json_patch(original, operations) == {"b": {"copy": {"x": [0, 1, 2]}}, "c": {"x": [2, 3]}}
    assert original == {"a": {"x": [1]}, "b": {}}


def test_operation_values_are_not_mutated_by_later_operations():
    operations = [{"op": "add", "path": "/a", "value": {"x": 1}}, {"op": "add", "path": "/a/y", "value": 2}]
    assert json_patch({}, operations) == {"a": {"x": 1, "y": 2}}
    assert json_patch({}, operations[:1]) == {"a": {"x": 1}}


@pytest.mark.parametrize("path", ["/items/0", "/items/-", "/items/99999", "/fields/k5/x"])
def test_many_operations_on_a_large_object_take_little_time(path):
    large = {"items": list(range(100_000)), "fields": {f"k{number}": {} for number in range(100_000)}}
    operations = [{"op": "add", "path": path, "value": 1}] * 10_000
    began = time.process_time()
    with suppress(PatchFailed):  # to put ten thousand items in front of a hundred thousand is refused
        json_patch(large, operations)
    assert time.process_time() - began < 10  # to copy the object for each of them takes minutes


def test_json_patch_that_copies_exponentially_fails():
    bomb = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(60)]
    with pytest.raises(PatchFailed, match="copies more than 3 MiB"):
        json_patch({"a": {"x": "y" * 100}}, bomb)


def test_update_takes_over_ownership_of_changed_fields():
    name, size, other = ("f:spec", "f:name"), ("f:spec", "f:size"), ("f:spec", "f:other")
    alice, bob = FieldWriter("alice", "v1", "t1"), FieldWriter("bob", "v1", "t2")
    first = updated([], {}, {name: "a", size: 1, other: 2}, alice)
    assert from_fields_v1(first[0]["fieldsV1"]) == {name, size, other}
    second = updated(first, {name: "a", size: 1, other: 2}, {name: "a", size: 2}, bob)
    assert {entry["manager"]: from_fields_v1(entry["fieldsV1"]) for entry in second} == {"alice": {name}, "bob": {size}}
    assert updated(second, {name: "a"}, {name: "a"}, alice) == second


def test_apply_detects_conflicts_takes_over_fields_and_drops_unset_fields():
    size, colour = ("f:spec", "f:size"), ("f:spec", "f:colour")
    alice, bob = FieldWriter("alice", "v1", "t1"), FieldWriter("bob", "v1", "t2")
    entries = [alice.entry("Apply", {size, colour})]
    found = conflicts(entries, {size}, bob, differs=lambda path: path == size)
    assert conflict_causes(found) == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "alice"', "field": ".spec.size"}
    ]
    assert conflicts(entries, {size}, bob, differs=lambda path: False) == []
    forced, dropped = applied(entries, {size}, {size}, bob)
    assert dropped == []
    assert {entry["manager"]: from_fields_v1(entry["fieldsV1"]) for entry in forced} == {
        "alice": {colour},
        "bob": {size},
    }
    # Alice no longer applies the colour, and no other manager owns this field.
    _, dropped = applied(forced, {size}, set(), alice)
    assert dropped == [colour]
    assert without({"spec": {"size": 1, "colour": "red"}}, colour) == {"spec": {"size": 1}}
    assert without({"kind": "Shirt", "spec": {"colour": "red"}}, colour) == {"kind": "Shirt"}


def test_field_partly_owned_by_another_manager_is_not_dropped():
    whole, part = ("f:spec", "f:labels"), ("f:spec", "f:labels", "f:a")
    alice, bob = FieldWriter("alice", "v1", "t1"), FieldWriter("bob", "v1", "t2")
    _, dropped = applied([alice.entry("Apply", {whole}), bob.entry("Update", {part})], set(), set(), alice)
    assert dropped == []


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Format()),
        ("*/*", Format()),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Format(TABLE)),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json", Format()),
        ("application/vnd.kubernetes.protobuf, application/json", Format()),
        ("application/x;as=Table;g=meta.k8s.io;v=v1, application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
         Format(PARTIAL_LIST)),
        ("application/yaml", Format(media="application/yaml")),
    ],
)  # fmt: skip
def test_first_supported_format_of_the_accept_header_is_chosen(accept, expected):
    assert negotiate(accept) == expected


def test_unsupported_accept_header_raises_not_acceptable():
    with pytest.raises(NotAcceptable):
        negotiate("text/html")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (119, "119s"), (120, "2m"), (330, "5m30s"), (3600, "60m"), (7 * 3600, "7h"), (15 * 3600 + 59, "15h"),
     (3 * 86400 + 4 * 3600, "3d4h"), (100 * 86400, "100d"), (800 * 86400, "2y70d"), (9 * 365 * 86400, "9y")],
)  # fmt: skip
def test_ages_are_written_as_kubectl_writes_them(seconds, text):
    assert duration(seconds) == text
