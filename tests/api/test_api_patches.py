"""Patches and server-side apply of queue objects, field validation, and deletion of collections."""

from __future__ import annotations

import asyncio

import pytest
from api_client import TOKEN, on_both_databases
from queue_objects import cluster_queue, cohort, manifest

STRICT = {"fieldValidation": "Strict"}


def causes(answer) -> list[tuple[str, str]]:
    return [(cause["reason"], cause["field"]) for cause in answer.body["details"]["causes"]]


def owners(document) -> dict[str, set[str]]:
    """Owned fields of the second level by manager and operation: {"gitops/Apply": {"f:spec/f:parentName"}}."""
    return {
        f"{entry['manager']}/{entry['operation']}": {
            f"{first}/{second}" for first, rest in entry["fieldsV1"].items() for second in (rest or {"": {}})
        }
        for entry in document["metadata"]["managedFields"]
    }


@on_both_databases
async def test_merge_patch_changes_only_the_given_fields(api):
    await api.post("clusterqueues", cluster_queue("one", cohortName="root"))
    patched = await api.patch("clusterqueues/one", {"spec": {"stopPolicy": "Hold", "cohortName": None}})
    assert patched.status == 200
    assert patched.body["spec"]["stopPolicy"] == "Hold"
    assert "cohortName" not in patched.body["spec"]
    assert patched.body["spec"]["resourceGroups"]
    assert patched.body["metadata"]["generation"] == 2


async def test_a_patch_that_changes_nothing_writes_nothing(api):
    before = (await api.post("cohorts", cohort("one", parent="root"))).body
    after = (await api.patch("cohorts/one", {"spec": {"parentName": "root"}})).body
    assert after == before


async def test_json_patch_is_applied_unless_its_test_operation_fails(api):
    await api.post("cohorts", cohort("one", parent="root"))
    operations = [
        {"op": "test", "path": "/spec/parentName", "value": "root"},
        {"op": "replace", "path": "/spec/parentName", "value": "trunk"},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
    ]
    patched = await api.patch("cohorts/one", operations, form="json")
    assert (patched.body["spec"], patched.body["metadata"]["labels"]) == ({"parentName": "trunk"}, {"a": "b"})
    refused = await api.patch("cohorts/one", operations, form="json")
    assert (refused.status, refused.body["reason"]) == (422, "Invalid")
    assert 'operation 0 of the JSON patch cannot be done: test at "/spec/parentName"' in refused.body["message"]


@pytest.mark.parametrize(
    ("patch", "form", "code", "says"),
    [
        ({"metadata": {"name": "two"}}, "merge", 400, 'metadata.name is "two", but the path says "one"'),
        ({"kind": "ClusterQueue"}, "merge", 400, "kind must be Cohort"),
        ({"apiVersion": None}, "merge", 400, "apiVersion must be"),
        ({"metadata": {"uid": "other"}}, "merge", 409, "was deleted and recreated"),
        ({"metadata": {"resourceVersion": "1"}}, "merge", 409, "has changed meanwhile"),
        ({"metadata": {"resourceVersion": "999999"}}, "merge", 409, "has changed meanwhile"),
        ({"metadata": {"resourceVersion": "x"}}, "merge", 422, "metadata.resourceVersion"),
        ({"metadata": None}, "merge", 422, "metadata: is required"),
        ({"spec": {"parentName": "A B"}}, "merge", 422, "spec.parentName"),
        ({"spec": []}, "merge", 422, "spec: must be an object"),
        ([], "merge", 400, "exactly one object"),
        ({}, "json", 422, "a JSON patch is a list"),
        ([{"op": "replace", "path": "", "value": 3}], "json", 400, "exactly one object"),
        ([{"op": "replace", "path": "/spec/parentName", "value": "A B"}], "json", 422, "spec.parentName"),
    ],
)  # fmt: skip
async def test_invalid_patch_is_refused_with_its_reason(api, patch, form, code, says):
    await api.post("resourceflavors", manifest("ResourceFlavor", "x"))
    before = (await api.post("cohorts", cohort("one", parent="root"))).body
    refused = await api.patch("cohorts/one", patch, form=form)
    assert refused.status == code
    assert says in refused.body["message"]
    assert (await api.get("cohorts/one")).body == before


async def test_unsupported_patch_type_gets_415(api):
    await api.post("cohorts", cohort("one"))
    for media in ("application/strategic-merge-patch+json", "application/json", "text/plain"):
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": media}
        refused = await api.send("PATCH", "cohorts/one", data=b"{}", headers=headers)
        assert refused.status == 415
        assert "application/merge-patch+json" in refused.body["message"]


async def test_patch_of_a_missing_object_is_not_found(api):
    for form, patch in (("merge", {}), ("json", [])):
        assert (await api.patch("cohorts/one", patch, form=form)).status == 404


# ---------------------------------------------------------------------- concurrent patches


@pytest.mark.long
@on_both_databases
async def test_concurrent_patches_with_resource_version_lose_no_update(api):
    clients = 15  # each conflicts with all the others
    await api.post("clusterqueues", cluster_queue("one") | {"metadata": {"name": "one", "annotations": {"count": "0"}}})

    async def increment() -> int:
        tries = 0
        while True:
            tries += 1
            metadata = (await api.get("clusterqueues/one")).body["metadata"]
            count = int(metadata["annotations"]["count"]) + 1
            wanted = {"annotations": {"count": str(count)}, "resourceVersion": metadata["resourceVersion"]}
            answer = await api.patch("clusterqueues/one", {"metadata": wanted})
            if answer.status == 200:
                return tries
            assert answer.status in (409, 503)  # the latter where the database is slow: nothing is written

    tries = await asyncio.gather(*(increment() for _ in range(clients)))
    assert (await api.get("clusterqueues/one")).body["metadata"]["annotations"]["count"] == str(clients)
    assert sum(tries) > clients


@pytest.mark.long
@on_both_databases
async def test_concurrent_patches_without_resource_version_keep_all_fields(api):
    await api.post("cohorts", cohort("one"))
    answers = await asyncio.gather(
        *(api.patch("cohorts/one", {"metadata": {"labels": {f"l-{n}": "x"}}}) for n in range(50))
    )
    assert {answer.status for answer in answers} == {200}
    assert len((await api.get("cohorts/one")).body["metadata"]["labels"]) == 50


# ---------------------------------------------------------------------- server-side apply


@on_both_databases
async def test_apply_creates_a_missing_object_and_records_the_field_manager(api):
    applied = await api.patch("cohorts/one", cohort("one", parent="root"), form="apply", fieldManager="gitops")
    assert applied.status == 201
    assert owners(applied.body) == {"gitops/Apply": {"f:spec/f:parentName"}}
    again = await api.patch("cohorts/one", cohort("one", parent="root"), form="apply", fieldManager="gitops")
    assert again.status == 200
    assert again.body == applied.body


async def test_apply_to_a_field_of_another_manager_conflicts_unless_forced(api):
    await api.patch("cohorts/one", cohort("one", parent="root"), form="apply", fieldManager="gitops")
    other = cohort("one", parent="trunk")
    refused = await api.patch("cohorts/one", other, form="apply", fieldManager="ada")
    assert (refused.status, refused.body["reason"]) == (409, "Conflict")
    assert refused.body["message"] == 'Apply failed with 1 conflict: conflict with "gitops": .spec.parentName'
    assert causes(refused) == [("FieldManagerConflict", ".spec.parentName")]

    forced = await api.patch("cohorts/one", other, form="apply", fieldManager="ada", force="true")
    assert forced.body["spec"] == {"parentName": "trunk"}
    assert owners(forced.body) == {"ada/Apply": {"f:spec/f:parentName"}}


async def test_field_is_removed_when_its_last_field_manager_stops_applying_the_field(api):
    one = manifest("Cohort", "one", spec={"parentName": "root"}) | {"metadata": {"name": "one", "labels": {"a": "1"}}}
    await api.patch("cohorts/one", one, form="apply", fieldManager="gitops")
    await api.patch("cohorts/one", cohort("one", parent="root"), form="apply", fieldManager="ada")

    without = manifest("Cohort", "one")
    left = (await api.patch("cohorts/one", without, form="apply", fieldManager="gitops")).body
    assert "labels" not in left["metadata"]
    assert left["spec"] == {"parentName": "root"}  # ada still owns this field
    left = (await api.patch("cohorts/one", without, form="apply", fieldManager="ada")).body
    assert "parentName" not in left.get("spec", {})


async def test_update_and_patch_take_over_field_ownership(api):
    created = (await api.post("cohorts", cohort("one", parent="root"), params={"fieldManager": "kubectl"})).body
    assert owners(created) == {"kubectl/Update": {"f:spec/f:parentName"}}
    patched = (await api.patch("cohorts/one", {"spec": {"parentName": "trunk"}}, fieldManager="edit")).body
    assert owners(patched) == {"edit/Update": {"f:spec/f:parentName"}}
    replaced = (await api.put("cohorts/one", cohort("one", parent="x"), headers=agent("sluice/1.0 (linux)"))).body
    assert owners(replaced) == {"sluice/Update": {"f:spec/f:parentName"}}
    refused = await api.patch("cohorts/one", cohort("one", parent="y"), form="apply", fieldManager="gitops")
    assert 'conflict with "sluice" using sluice.dev/v1: .spec.parentName' in refused.body["message"]


def agent(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}", "User-Agent": name}


async def test_equal_quota_in_another_notation_is_no_apply_conflict(api):
    await api.patch("clusterqueues/one", cluster_queue("one", cpu="4"), form="apply", fieldManager="gitops")
    same = await api.patch("clusterqueues/one", cluster_queue("one", cpu=4), form="apply", fieldManager="ada")
    assert same.status == 200
    other = await api.patch("clusterqueues/one", cluster_queue("one", cpu=5), form="apply", fieldManager="ada")
    assert causes(other) == [("FieldManagerConflict", ".spec.resourceGroups")]


async def test_empty_namespace_selector_is_removed_when_no_longer_applied(api):
    await api.patch("clusterqueues/one", cluster_queue("one"), form="apply", fieldManager="gitops")
    without = cluster_queue("one")
    del without["spec"]["namespaceSelector"]
    left = (await api.patch("clusterqueues/one", without, form="apply", fieldManager="gitops")).body
    assert "namespaceSelector" not in left["spec"]


@pytest.mark.parametrize(
    ("document", "params", "code", "says"),
    [
        (cohort("one"), {}, 422, "fieldManager: is required for apply patch"),
        (cohort("one"), {"fieldManager": "x" * 129}, 400, "fieldManager"),
        (cohort("two"), {"fieldManager": "a"}, 400, 'metadata.name is "two"'),
        (cluster_queue("one"), {"fieldManager": "a"}, 400, "kind must be Cohort"),
        (manifest("Cohort", "one", spec={"odd": 1}), {"fieldManager": "a"}, 422, "spec.odd"),
        ({**cohort("one"), "metadata": {"name": "one", "managedFields": [{}]}}, {"fieldManager": "a"}, 400, "nil"),
        ([], {"fieldManager": "a"}, 400, "exactly one object"),
    ],
)
async def test_invalid_apply_is_refused_and_creates_nothing(api, document, params, code, says):
    refused = await api.patch("cohorts/one", document, form="apply", **params)
    assert refused.status == code
    assert says in refused.body["message"]
    assert (await api.get("cohorts/one")).status == 404


async def test_force_is_for_apply_only(api):
    await api.post("cohorts", cohort("one"))
    refused = await api.patch("cohorts/one", {}, force="true")
    assert refused.status == 422
    assert "force" in refused.body["message"]


async def test_yaml_can_be_applied(api):
    text = "apiVersion: sluice.dev/v1\nkind: Cohort\nmetadata: {name: one}\nspec: {parentName: root}\n"
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/apply-patch+yaml"}
    applied = await api.send("PATCH", "cohorts/one?fieldManager=a", data=text, headers=headers)
    assert (applied.status, applied.body["spec"]) == (201, {"parentName": "root"})


# ---------------------------------------------------------------------- dry runs, unknown and duplicate fields


@on_both_databases
@pytest.mark.parametrize(("form", "patch"), [("merge", {"spec": {"parentName": "x"}}), ("apply", cohort("one", "x"))])
async def test_a_dry_run_of_a_patch_writes_nothing(api, form, patch):
    await api.post("cohorts", cohort("one"))
    before = (await api.get("cohorts")).body
    answer = await api.patch("cohorts/one", patch, form=form, dryRun="All", fieldManager="a")
    assert answer.status == 200
    assert answer.body["spec"]["parentName"] == "x"
    assert (await api.get("cohorts")).body == before


async def test_field_validation_decides_whether_an_unknown_field_warns_or_fails(api):
    odd = cluster_queue("one", cohrtName="root", stopPolicy="Hold")
    created = await api.post("clusterqueues", odd)
    assert created.status == 201
    assert "cohrtName" not in created.body["spec"]
    told = '299 - "unknown field \\"spec.cohrtName\\"; did you mean \\"cohortName\\"?"'
    assert told in created.headers.getall("Warning")
    ignored = await api.put("clusterqueues/one", odd, params={"fieldValidation": "Ignore"})
    assert ignored.status == 200
    assert not any("unknown" in warning for warning in ignored.headers.getall("Warning", []))

    strict = await api.put("clusterqueues/one", odd, params=STRICT)
    assert (strict.status, strict.body["reason"]) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.cohrtName"' in strict.body["message"]
    patched = await api.patch("clusterqueues/one", {"spec": {"odd": 1}}, **STRICT)
    assert (patched.status, causes(patched)) == (422, [("FieldValueInvalid", "patch")])
    assert (await api.patch("clusterqueues/one", {"spec": {"odd": 1}})).status == 200


@pytest.mark.parametrize("name", ["cohort_name", "cohortname"])
async def test_field_name_in_another_spelling_fails_strict_validation(api, name):
    assert (await api.post("clusterqueues", cluster_queue("one", **{name: "x"}), params=STRICT)).status == 400


async def test_field_validation_decides_whether_a_duplicate_field_warns_or_fails(api):
    body = b'{"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": {"name": "one", "name": "two"}}'
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    created = await api.post("cohorts", data=body, headers=headers)
    assert (created.status, created.body["metadata"]["name"]) == (201, "two")
    assert created.headers["Warning"] == '299 - "duplicate field \\"metadata.name\\""'
    strict = await api.post("cohorts", data=body, headers=headers, params=STRICT)
    assert (strict.status, strict.body["reason"]) == (400, "BadRequest")
    assert 'duplicate field "metadata.name"' in strict.body["message"]
    body, ignore = body.replace(b"two", b"three"), {"fieldValidation": "Ignore"}
    quiet = await api.post("cohorts", data=body, headers=headers, params=ignore)
    assert "Warning" not in quiet.headers


async def test_unknown_field_validation_value_is_a_bad_request(api):
    assert (await api.post("cohorts", cohort("a"), params={"fieldValidation": "Maybe"})).status == 400


async def test_finalizers_and_owner_references_are_dropped_with_a_warning(api):
    owned = cohort("one")
    owned["metadata"] |= {"finalizers": ["a/b"], "ownerReferences": [{"uid": "1"}]}
    created = await api.post("cohorts", owned)
    assert created.status == 201
    assert sorted(created.headers.getall("Warning")) == [
        '299 - "metadata.finalizers is not supported for a Cohort, and is ignored"',
        '299 - "metadata.ownerReferences is not supported for a Cohort, and is ignored"',
    ]
    for found in (created, await api.get("cohorts/one")):
        assert not found.body["metadata"].keys() & {"finalizers", "ownerReferences"}


async def test_generate_name_yields_unique_names(api):
    generated = manifest("Cohort", "x") | {"metadata": {"generateName": "team-"}}
    names = {(await api.post("cohorts", generated)).body["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(len(name) == 10 and name.startswith("team-") for name in names)
    odd = manifest("Cohort", "x") | {"metadata": {"generateName": 3}}
    assert (await api.post("cohorts", odd)).status == 400


# ---------------------------------------------------------------------- deletion of collections


@on_both_databases
async def test_delete_collection_deletes_the_selected_objects(api):
    for name, team in (("a", "x"), ("b", "y"), ("c", "x")):
        await api.post("cohorts", cohort(name) | {"metadata": {"name": name, "labels": {"team": team}}})
    query = {"params": {"labelSelector": "team=x"}}
    dry = await api.delete("cohorts", params={"labelSelector": "team=x", "dryRun": "All"})
    assert [item["metadata"]["name"] for item in dry.body["items"]] == ["a", "c"]
    deleted = await api.delete("cohorts", **query)
    assert deleted.body["kind"] == "CohortList"
    assert [item["metadata"]["name"] for item in deleted.body["items"]] == ["a", "c"]
    assert [item["metadata"]["name"] for item in (await api.get("cohorts")).body["items"]] == ["b"]


async def test_delete_collection_refuses_preconditions(api):
    await api.post("cohorts", cohort("a"))
    assert (await api.delete("cohorts", {"preconditions": {"uid": "1"}})).status == 400
    assert (await api.get("cohorts/a")).status == 200
