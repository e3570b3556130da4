"""The sandbox's pure parts: quantities, patches, schemas."""

import pytest

from admission.sandbox.apiserver.patch import strategic_merge
from admission.sandbox.apiserver.schema import DecodeError, Schema, canonical_quantity, struct_of


@pytest.mark.parametrize(
    ("given", "canonical"),
    [("1", "1"), ("1000m", "1"), ("1500m", "1500m"), ("0.5", "500m"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"),
     ("1000", "1k"), ("2000k", "2M"), ("100", "100"), ("0", "0"), ("1e3", "1e3"), ("0.1Ki", "103"), ("1n", "1n")],
)  # fmt: skip
def test_quantity_is_converted_to_its_canonical_form(given, canonical):
    assert canonical_quantity(given) == canonical


def test_strategic_merge_patch_applies_set_element_order():
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
            "containers": [{"name": "b", "image": "new"}],
        }
    }
    pod = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}}
    merged = strategic_merge(pod, patch, struct_of("V1Pod"))
    assert merged["spec"]["containers"] == [{"name": "b", "image": "new"}, {"name": "a", "image": "1"}]


def test_decoding_drops_unknown_and_empty_fields_and_reports_unknown_ones():
    unknown = []
    decoded = Schema("V1ConfigMap").decode(
        {"metadata": {"name": "a", "labels": {}, "odd": 1}, "data": None, "immutable": False}, None, unknown
    )
    assert decoded == {"metadata": {"name": "a"}, "immutable": False}
    assert unknown == ["metadata.odd"]


def test_decoding_rejects_a_wrong_type_with_the_field_path():
    with pytest.raises(DecodeError, match=r"spec\.parallelism: cannot unmarshal string"):
        Schema("V1Job").decode({"metadata": {}, "spec": {"parallelism": "2"}}, None, [])
