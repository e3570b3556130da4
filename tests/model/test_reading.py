"""Parser for YAML and JSON: streams, lists, limits on aliases, and messages for malformed files."""

from __future__ import annotations

import json
import time

import pytest

from admission.model.errors import InvalidObject
from admission.model.manifests import parse_documents, parse_manifest


def test_yaml_streams_json_and_lists_are_read():
    yaml_text = "---\na: 1\n---\n---\nkind: List\nitems:\n- {a: 2}\n- {a: 3}\n"
    documents = parse_documents(yaml_text, source="f")
    assert [document.body["a"] for document in documents] == [1, 2, 3]
    assert [document.source for document in documents] == [
        "f: document 1",
        "f: document 3: items[0]",
        "f: document 3: items[1]",
    ]
    body = {"kind": "ResourceFlavor", "spec": {"tolerations": [{"key": "spot", "operator": "Exists"}]}}
    (document,) = parse_documents(json.dumps(body, indent="\t"), source="f.json")
    assert (document.source, document.body) == ("f.json", body)


def test_items_of_a_typed_list_get_their_kind_from_the_list():
    text = json.dumps({"apiVersion": "sluice.dev/v1", "kind": "CohortList", "items": [{"metadata": {"name": "a"}}]})
    (document,) = parse_documents(text, source="f")
    assert parse_manifest(document.body).key == ("Cohort", "", "a")


def test_yaml_timestamps_stay_strings_as_in_json():
    (document,) = parse_documents("at: 2026-01-02T03:04:05Z\nday: 2026-01-02\n", source="f")
    assert document.body == {"at": "2026-01-02T03:04:05Z", "day": "2026-01-02"}


MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}\n" for level in range(1, 10)
)
"""Nested merge keys in less than a thousand bytes, which expand to 9^9 values."""
BOMB = "a: &k0 [x, x]\n" + "\n".join(f"b{i}: &k{i} [{', '.join([f'*k{i - 1}'] * 9)}]" for i in range(1, 12))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\nb: 2", "line 2"),
        ("a: 1\n  b: 2", "line 2, column 4"),
        ("a:\n\tb: 1\n", "line 2, column 1: YAML is indented with spaces, not with tabs"),
        ("a:\n  b: 1\n\tc: 2\n", "line 3, column 1: YAML is indented with spaces"),
        ("a: b\r\n \tc: d\r\n", "line 2, column 4: YAML is indented with spaces"),
        ("- a\n-\tb: 1\n  c: 2\n", "line 2, column 2: YAML is indented with spaces"),
        ("a: |\n  x\n\ty\n", "line 3, column 1: YAML is indented with spaces"),
        ("\u2028a: 1\u2028\tb: 2", "line 3, column 1: YAML is indented with spaces"),
        ('{\n\t"a": 1,\n\t"b" 2\n}', "line 3, column 6: did not find"),
        ("a:\tb\n  c: 1", "line 2, column 4: mapping values"),
        ("a: 1\na: 2", 'line 2, column 1: the key "a" is given twice'),
        ('{"a": 1, "a": 2}', 'the key "a" is given twice'),
        ("[" * 100_000, "nested deeper than 64"),
        ('{"a":' * 100_000, "nested deeper than 64"),
        ("a: &a [*a]", "line 1: an alias stands for what it is a part of"),
        ("a: &a {b: {<<: *a}}", "line 1: an alias stands for what it is a part of"),
        (MERGES, "more than 500000 values"),
        ("a: " + "1:" * 100_000 + "1", "line 1: a number has more than 64 characters"),
        ("a: 0x" + "f" * 100, "line 1: a number has more than 64 characters"),
        ("? [a]\n: b", "line 1: a key must be a string"),
        (BOMB, "more than 500000 values"),
        ("a: " + "x" * (3 * 2**20), "larger than 3 MiB"),
        ("just text", "is not an object"),
        ("- 1", "is not an object"),
        ("1: 2", "must be a string"),
        ("kind: List\nitems: 5", "items: must be a list"),
        ("kind: List\nitems: [5]", "items[0]: is not an object"),
        ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("a: !!set {b, c}", "plain values, lists and objects"),
        ("a: !!binary aGVsbG8=", "plain values, lists and objects"),
        ("a: \x00", "neither YAML nor JSON"),
        ("a: \ud800", "f"),
        ('a: {b: [x, "y\\0"]}', "a.b[1]: holds the character U+0000"),
        ('{"a": {"\\ud800": 1}}', "a: the key '\\ud800' holds half of a character"),
        ('a: {"b\\0": 1}', "a: the key 'b\\x00' holds the character U+0000"),
    ],
)
def test_malformed_file_is_refused_with_a_one_line_message(text, message):
    with pytest.raises(InvalidObject) as caught:
        parse_documents(text, source="f.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("f.yaml: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_alias_expansion_beyond_the_limit_is_refused_without_being_built():
    began = time.process_time()
    with pytest.raises(InvalidObject, match="more than 500000 values"):
        parse_documents(MERGES, source="f")
    assert time.process_time() - began < 2.0  # constructing the document would take hours


def test_aliases_and_merge_keys_within_the_limit_are_expanded():
    (document,) = parse_documents("a: &a {x: 1}\nb: &b {<<: *a, y: 2}\nc: [*a, {<<: [*a, *b], z: 3}]\n", source="f")
    assert document.body["c"] == [{"x": 1}, {"x": 1, "y": 2, "z": 3}]


def test_key_that_overrides_a_merged_key_is_no_duplicate():
    (document,) = parse_documents("base: &b {x: 1}\nitem: {<<: *b, x: 2}\n", source="f")
    assert document.body["item"] == {"x": 2}


def test_file_with_only_comments_has_no_documents():
    assert parse_documents("# only a comment\n", source="f") == []
