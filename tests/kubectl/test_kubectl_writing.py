"""Queue objects written by kubectl: each verb, validation errors, warnings, and RBAC."""

from __future__ import annotations

import json

import pytest
import yaml

pytestmark = pytest.mark.costly  # kubectl takes most of a second of processor time in each test

QUOTA = "{.spec.resourceGroups[0].flavors[0].resources[0].nominalQuota}"
COHORT = '{"apiVersion":"sluice.dev/v1","kind":"Cohort","metadata":{"name":"b"}}'


@pytest.fixture
async def queues(kubectl):
    """A kubectl with objects to change."""
    await kubectl.ok("apply", "-f", "queues.yaml")
    return kubectl


def changed(queues, old: str, new: str) -> str:
    """File with the manifests, in which one text is replaced."""
    path = queues.folder / "changed.yaml"
    path.write_text((queues.folder / "queues.yaml").read_text().replace(old, new))
    return str(path)


def changed_cluster_queue(queues, old: str, new: str) -> str:
    """Manifest of the ClusterQueue alone, in which one text is replaced."""
    (document,) = [
        each for each in (queues.folder / "queues.yaml").read_text().split("---\n") if "kind: ClusterQueue" in each
    ]
    assert old in document
    return document.replace(old, new)


async def quota(queues) -> str:
    return await queues.ok("get", "cq", "vision", "-o", f"jsonpath={QUOTA}")


async def test_apply_creates_and_changes_objects_and_keeps_labels_of_others(kubectl):
    names = ("resourceflavor", "default"), ("cohort", "research"), ("clusterqueue", "vision"), ("localqueue", "main")
    assert (await kubectl.ok("apply", "-f", "queues.yaml")).splitlines() == [
        f"{kind}.sluice.dev/{name} created" for kind, name in names
    ]
    assert (await kubectl.ok("apply", "-f", "queues.yaml")).splitlines() == [
        f"{kind}.sluice.dev/{name} unchanged" for kind, name in names
    ]
    out = await kubectl.ok("apply", "-f", changed(kubectl, '"4"', '"8"'))
    assert out.splitlines()[2] == "clusterqueue.sluice.dev/vision configured"
    assert await quota(kubectl) == "8"
    # Labels removed from the manifest are removed; labels set by others stay.
    await kubectl.ok("label", "cq", "vision", "by=others")
    await kubectl.ok("apply", "-f", changed(kubectl, "labels: {team: a}", "labels: {team2: a}"))
    assert json.loads(await kubectl.ok("get", "cq", "vision", "-o", "jsonpath={.metadata.labels}")) == {
        "by": "others",
        "team2": "a",
    }


async def test_manifests_in_a_list_are_applied(kubectl):
    documents = [*yaml.safe_load_all((kubectl.folder / "queues.yaml").read_text())]
    documents.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}})
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    out = await kubectl.ok("apply", "-f", "-", stdin=manifest)
    assert out.splitlines()[0] == "resourceflavor.sluice.dev/default created"
    assert out.splitlines()[-1] == "configmap/a created"
    assert "configmap/a unchanged" in await kubectl.ok("apply", "-f", "-", stdin=manifest)


async def test_unknown_field_in_a_list_is_refused(kubectl):
    broken = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "dat": {"x": "1"}}
    said = await kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": [broken]}))
    assert said.code == 1
    assert 'unknown field "dat"' in said.err


@pytest.mark.long
async def test_server_side_apply_tracks_field_managers_and_refuses_conflicts(queues):
    out = await queues.ok("apply", "--server-side", "-f", "-", stdin=COHORT)
    assert out == "cohort.sluice.dev/b serverside-applied\n"
    cohort = json.loads(await queues.ok("get", "cohort", "b", "-o", "json", "--show-managed-fields"))
    assert [entry["manager"] for entry in cohort["metadata"]["managedFields"]] == ["kubectl"]
    said = await queues("apply", "--server-side", "--field-manager=ci", "-f", changed(queues, '"4"', '"8"'))
    assert said.code == 1
    assert (
        'Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using sluice.dev/v1: '
        ".spec.resourceGroups" in said.err
    )
    assert await quota(queues) == "4"
    file = str(queues.folder / "changed.yaml")
    await queues.ok("apply", "--server-side", "--field-manager=ci", "--force-conflicts", "-f", file)
    assert await quota(queues) == "8"


async def test_diff_and_apply_dry_run_show_changes_without_writing(queues):
    file = changed(queues, '"4"', '"8"')
    said = await queues("diff", "-f", file)
    assert said.code == 1
    assert '-        nominalQuota: "4"\n+        nominalQuota: "8"\n' in said.out
    assert (await queues("diff", "-f", "queues.yaml")).code == 0
    out = await queues.ok("apply", "--dry-run=server", "-f", file)
    assert out.splitlines()[2] == "clusterqueue.sluice.dev/vision configured (server dry run)"
    assert await quota(queues) == "4"


@pytest.mark.long
async def test_edit_writes_the_edited_manifest_and_reports_invalid_fields(queues):
    editor = queues.folder / "editor.sh"
    editor.write_text('#!/bin/sh\nsed -i \'s/nominalQuota: .*/nominalQuota: "9"/\' "$1"\n')
    editor.chmod(0o755)
    assert await queues.ok("edit", "cq", "vision", EDITOR=str(editor)) == "clusterqueue.sluice.dev/vision edited\n"
    assert await quota(queues) == "9"
    said = await queues("edit", "cq", "vision", EDITOR="true")
    assert (said.code, said.err) == (0, "Edit cancelled, no changes made.\n")
    # The error is at the top of the file when the editor is opened again.
    editor.write_text('#!/bin/sh\ncat "$1" >> seen.yaml\nsed -i \'s/nominalQuota: .*/nominalQuota: many/\' "$1"\n')
    said = await queues("edit", "cq", "vision", EDITOR=str(editor))
    assert said.code == 1
    assert "is invalid" in said.err
    assert (
        "# * spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: " in (queues.folder / "seen.yaml").read_text()
    )
    assert await quota(queues) == "9"


@pytest.mark.long
async def test_patch_supports_merge_and_json_but_not_strategic_merge(queues):
    out = await queues.ok("patch", "cq", "vision", "--type=merge", "-p", '{"spec":{"stopPolicy":"Hold"}}')
    assert out == "clusterqueue.sluice.dev/vision patched\n"
    operations = [
        {"op": "test", "path": "/spec/stopPolicy", "value": "Hold"},
        {"op": "replace", "path": "/spec/stopPolicy", "value": "None"},
        {"op": "remove", "path": "/metadata/labels/team"},
    ]
    await queues.ok("patch", "cq", "vision", "--type=json", "-p", json.dumps(operations))
    vision = yaml.safe_load(await queues.ok("get", "cq", "vision", "-o", "yaml"))
    assert (vision["spec"]["stopPolicy"], vision["metadata"].get("labels")) == ("None", None)
    said = await queues("patch", "cq", "vision", "--type=json", "-p", json.dumps(operations))
    assert said.code == 1
    assert said.err.startswith('The ClusterQueue "vision" is invalid: patch: ')
    said = await queues("patch", "cq", "vision", "-p", '{"spec":{"stopPolicy":"Hold"}}')
    assert said.code == 1
    assert "application/strategic-merge-patch+json is not supported" in said.err
    out = await queues.ok("patch", "cq", "vision", "--type=merge", "-p", '{"spec":{"stopPolicy":"None"}}')
    assert out == "clusterqueue.sluice.dev/vision patched (no change)\n"


@pytest.mark.long
async def test_label_and_annotate_with_an_audited_change_reason(queues, store):
    assert await queues.ok("label", "cq", "vision", "tier=gold") == "clusterqueue.sluice.dev/vision labeled\n"
    said = await queues("label", "cq", "vision", "tier=silver")
    assert "already has a value (gold), and --overwrite is false" in said.err
    await queues.ok("label", "--overwrite", "cq", "vision", "tier=silver")
    assert await queues.ok("label", "cq", "vision", "tier-") == "clusterqueue.sluice.dev/vision unlabeled\n"
    out = await queues.ok("annotate", "cq", "vision", "sluice.dev/change-reason=more people")
    assert out == "clusterqueue.sluice.dev/vision annotated\n"
    (record,) = (await store.audit.list(limit=1)).records
    assert (record.user, record.verb, record.reason) == ("admin", "patch", "more people")


async def test_create_and_replace_with_dry_run_force_and_generate_name(queues):
    assert await queues.ok("create", "-f", "-", stdin=COHORT) == "cohort.sluice.dev/b created\n"
    said = await queues("create", "-f", "-", stdin=COHORT)
    assert said.code == 1
    assert said.err.startswith('Error from server (AlreadyExists): error when creating "STDIN": ')
    parent = json.dumps(json.loads(COHORT) | {"spec": {"parentName": "research"}})
    assert await queues.ok("replace", "-f", "-", stdin=parent) == "cohort.sluice.dev/b replaced\n"
    assert await queues.ok("get", "cohort", "b", "-o", "jsonpath={.spec.parentName}") == "research"
    await queues.ok("create", "--dry-run=server", "-f", "-", stdin=COHORT.replace('"b"', '"c"'))
    assert (await queues("get", "cohort", "c")).code == 1
    out = await queues.ok("replace", "--force", "-f", "-", stdin=COHORT)
    assert out == 'cohort.sluice.dev "b" deleted\ncohort.sluice.dev/b replaced\n'
    generated = COHORT.replace('"name":"b"', '"generateName":"team-"')
    name = await queues.ok("create", "-f", "-", "-o", "name", stdin=generated)
    assert name.startswith("cohort.sluice.dev/team-")


@pytest.mark.long
async def test_delete_by_name_selector_file_and_all(queues):
    for name in "bcd":
        manifest = json.loads(COHORT)
        manifest["metadata"] = {"name": name, "labels": {"x": name}}
        await queues.ok("create", "-f", "-", stdin=json.dumps(manifest))
    said = await queues("delete", "cq", "vision")
    assert said.err == (
        'Error from server (Conflict): ClusterQueue "vision" is in use by LocalQueue default/main; '
        "move or delete that first\n"
    )
    assert await queues.ok("delete", "cohort", "b") == 'cohort.sluice.dev "b" deleted\n'
    assert await queues.ok("delete", "cohort", "-l", "x=c") == 'cohort.sluice.dev "c" deleted\n'
    assert await queues.ok("delete", "lq", "--all") == 'localqueue.sluice.dev "main" deleted\n'
    assert await queues.ok("delete", "cq/vision", "--now") == 'clusterqueue.sluice.dev "vision" deleted\n'
    assert await queues.ok("delete", "--ignore-not-found", "cq", "vision") == ""
    said = await queues("delete", "--ignore-not-found", "-f", "queues.yaml")
    assert said.out == 'resourceflavor.sluice.dev "default" deleted\ncohort.sluice.dev "research" deleted\n'
    assert await queues.ok("get", "cohorts", "-o", "name") == "cohort.sluice.dev/d\n"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("namespaceSelector", "namespaceselector", 'unknown field "spec.namespaceselector"'),
        ('"4"', "many", "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"),
        ("cohortName: research", "cohortName: [research]", "spec.cohortName"),
        ("{name: vision", "{name: Vision", "metadata.name"),
        ("namespaceSelector: {}", "preemption: {withinClusterQueue: Sometimes}", "spec.preemption.withinClusterQueue"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_apply_of_an_invalid_manifest_names_the_field(shared_kubectl, old, new, says):
    said = await shared_kubectl("apply", "-f", "-", stdin=changed_cluster_queue(shared_kubectl, old, new))
    assert said.code == 1
    assert says in said.err
    assert (await shared_kubectl("get", "cq", "vision")).code == 1


async def test_apply_prints_warnings_of_the_server(kubectl):
    manifest = {
        "apiVersion": "sluice.dev/v1",
        "kind": "LocalQueue",
        "metadata": {"name": "main", "namespace": "default"},
        "spec": {"clusterQueue": "later"},
    }
    said = await kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    assert (said.code, said.out) == (0, "localqueue.sluice.dev/main created\n")
    assert said.err == "Warning: there is no ClusterQueue later; nothing is admitted before it is created\n"


async def test_write_without_permission_is_forbidden(queues):
    await queues.ok("label", "cohort", "research", "a=b")
    for command in (
        ("label", "cohort", "research", "a-"),
        ("delete", "cohort", "research"),
        ("apply", "-f", "queues.yaml"),
        ("apply", "--server-side", "-f", "queues.yaml"),
        ("create", "-f", "queues.yaml"),
    ):
        said = await queues(*command, user="alice")
        assert (said.code, "(Forbidden)" in said.err) == (1, True), command
    assert await queues.ok("get", "cohort", "research", "-o", "jsonpath={.metadata.labels.a}") == "b"
