"""JSONPath templates, compared with the output of kubectl."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from admission.cli.output.jsonpath import parse, render

OBJECT = {
    "kind": "Shelf",
    "apiVersion": "example.com/v1",
    "metadata": {"namespace": "x"},
    "things": [
        {"meta": {"name": "a", "labels": {"app.kubernetes.io/name": "x"}}, "data": {"n": 1}},
        {"meta": {"name": "b", "annotations": {"k": "v"}}},
        {"meta": {"name": "c"}, "data": {"n": 3, "k": "ü"}},
    ],
}
TEMPLATES = {
    "{.kind}": "Shelf",
    "{.things[*].meta.name}": "a b c",
    "{.things[0].meta.name}": "a",
    "{.things[-1].meta.name}": "c",
    "{.things[0,2].meta.name}": "a c",
    "{.things[1:].meta.name}": "b c",
    "{.things[0:2].meta.name}": "a b",
    "{.nothing.at.all}": "",
    "{..name}": "a b c",
    "{.things[*]['meta']['name']}": "a b c",
    r"{.things[0].meta.labels.app\.kubernetes\.io/name}": "x",
    "{.things[0].data}": '{"n":1}',
    '{.things[?(@.meta.name=="b")].meta.annotations.k}': "v",
    "{.things[?(@.data.n)].meta.name}": "a c",
    '{.things[?(@.meta.name!="b")].meta.name}': "a c",
    '{range .things[*]}{.meta.name}{"\\n"}{end}': "a\nb\nc\n",
    '{range .things[*]}{.meta.name}={.data.k}{"\\t"}{end}.': "a=\tb=\tc=ü\t.",
    "name: {.things[2].meta.name}!": "name: c!",
    "{$.kind}": "Shelf",
    "{.things[0].data.*}": "1",
}


@pytest.mark.parametrize(("template", "expected"), TEMPLATES.items(), ids=TEMPLATES)
def test_template_renders_the_expected_text(template, expected):
    assert render(template, OBJECT) == expected


def test_braces_of_a_template_are_optional():
    assert render(".things[1].meta.name", OBJECT) == "b"


def test_index_beyond_the_end_of_a_list_renders_nothing():
    assert render("{.things[9].meta.name}", OBJECT) == ""


def test_filter_compares_numbers_only_with_numbers():
    document = {"things": [{"n": 1, "name": "a"}, {"n": 10, "name": "b"}, {"n": "x", "name": "c"}]}
    assert render("{.things[?(@.n>2)].name}", document) == "b"
    assert render("{.things[?(@.n<=1)].name}", document) == "a"


def test_range_blocks_can_be_nested():
    document = {"a": [{"b": [1, 2]}, {"b": [3]}]}
    assert render("{range .a[*]}<{range .b[*]}{@},{end}>{end}", document) == "<1,2,><3,>"


@pytest.mark.parametrize(
    "template",
    [
        *("{.a", "}", "{.a[}", "{.a[x]}", "{range .a}", "{end}", "{.a[?(b)]}", "{.a[?(@.b==x)]}", "{'a\\q'}"),
        *("{.a[0:3:0]}", "{.a[-:2]}"),
    ],
)
def test_invalid_template_is_an_error_with_an_example(template):
    with pytest.raises(ValueError, match=r"^invalid JSONPath template .*: .*; use a template such as {.metadata.name}"):
        parse(template)


@pytest.mark.parametrize("template", TEMPLATES)
def test_kubectl_renders_each_template_the_same(tmp_path: Path, template):
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.fail("kubectl is not in PATH", pytrace=False)
    file = tmp_path / "object.json"
    file.write_text(json.dumps(OBJECT))
    # --local sends no request; the patch changes a field, since without a change kubectl prints nothing.
    done = subprocess.run(
        [kubectl, "patch", "--local", "-f", file, "--type=merge", "-p", '{"x": 0}', "-o", f"jsonpath={template}"],
        capture_output=True,
        text=True,
        check=True,
        env={"KUBECONFIG": "/nonexistent", "HOME": str(tmp_path)},
    )
    assert done.stdout == TEMPLATES[template]
