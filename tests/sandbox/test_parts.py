"""The sandbox's pure parts: quantities, patches, schemas."""

import pytest

from admission.sandbox.apiserver.patch import strategic_merge
from admission.sandbox.apiserver.schema import DecodeError, Schema, canonical_quantity, struct_of


@pytest.mark.parametrize(
    ("given", "canonical"),
    [("1", "1"), ("1000m", "1"), ("1500m", "1500m"), ("0.5", "500m"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"),
     ("1000", "1k"), ("2000k", "2M"), ("100", "100"), ("0", "0"), ("1e3", "1e3"), ("0.1Ki", "103"), ("1n", "1n")],
)  # fmt: skip
def test_quantities_come_back_in_their_canonical_form(given, canonical):
    assert canonical_quantity(given) == canonical


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
