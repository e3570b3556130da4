"""Queue objects read by kubectl: tables, documents, watches, and RBAC."""

from __future__ import annotations

import json
import re

import pytest
import pytest_asyncio
import yaml

pytestmark = pytest.mark.costly  # kubectl takes most of a second of processor time in each test

reading = pytest.mark.asyncio(loop_scope="module")
"""Marks tests that write nothing and share one cluster, `shared_queues`."""


@pytest.fixture
async def queues(kubectl):
    """A kubectl with objects to look at and to change."""
    await kubectl.ok("apply", "-f", "queues.yaml")
    return kubectl


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared_queues(shared_kubectl):
    """A kubectl with objects to look at only."""
    await shared_kubectl.ok("apply", "-f", "queues.yaml")
    return shared_kubectl


def rows(text: str) -> list[list[str]]:
    """Cells of a table, without the column AGE."""
    split = [re.split(r" {2,}", line.rstrip()) for line in text.splitlines()]
    assert all(re.fullmatch(r"AGE|\d+s", line[-1]) for line in split), text
    return [line[:-1] for line in split]


@reading
async def test_api_resources_lists_all_kinds_with_their_short_names(shared_queues):
    lines = (await shared_queues.ok("api-resources", "--api-group=sluice.dev", "--no-headers")).splitlines()
    found = {line.split()[0]: line.split()[1:] for line in lines}
    assert found["clusterqueues"] == ["cq", "sluice.dev/v1", "false", "ClusterQueue"]
    assert found["localqueues"] == ["lq,queue,queues", "sluice.dev/v1", "true", "LocalQueue"]
    assert found["workloads"] == ["wl", "sluice.dev/v1", "true", "Workload"]
    assert {"cohorts", "resourceflavors", "workloadpriorityclasses", "admissionchecks"} < found.keys()
    verbs = await shared_queues.ok("api-resources", "--api-group=sluice.dev", "-o", "wide")
    (clusterqueues,) = [line for line in verbs.splitlines() if line.startswith("clusterqueues ")]
    assert "create,delete,deletecollection,get,list,patch,update,watch" in clusterqueues.split()


@reading
async def test_get_prints_tables(shared_queues):
    assert rows(await shared_queues.ok("get", "cq")) == [
        ["NAME", "COHORT", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "ACTIVE"],
        ["vision", "research", "0", "0", "True"],
    ]
    assert rows(await shared_queues.ok("get", "clusterqueue", "vision", "-o", "wide")) == [
        ["NAME", "COHORT", "STRATEGY", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "ACTIVE"],
        ["vision", "research", "BestEffortFIFO", "0", "0", "True"],
    ]
    assert rows(await shared_queues.ok("get", "lq", "--all-namespaces")) == [
        ["NAMESPACE", "NAME", "CLUSTERQUEUE", "PENDING WORKLOADS", "ADMITTED WORKLOADS"],
        ["default", "main", "vision", "0", "0"],
    ]
    assert rows(await shared_queues.ok("get", "rf")) == [["NAME"], ["default"]]
    assert rows(await shared_queues.ok("get", "co")) == [["NAME", "PARENT"], ["research"]]
    several = await shared_queues.ok("get", "cq,co,lq,rf")
    assert re.findall(r"^\S+/\S+", several, re.MULTILINE) == [
        "clusterqueue.sluice.dev/vision",
        "cohort.sluice.dev/research",
        "localqueue.sluice.dev/main",
        "resourceflavor.sluice.dev/default",
    ]


@reading
async def test_get_prints_documents(shared_queues):
    document = yaml.safe_load(await shared_queues.ok("get", "cq", "vision", "-o", "yaml"))
    assert (document["apiVersion"], document["kind"]) == ("sluice.dev/v1", "ClusterQueue")
    assert document["spec"]["cohortName"] == "research"
    assert document["status"]["conditions"][0]["type"] == "Active"
    assert "managedFields" not in document["metadata"]
    listed = json.loads(await shared_queues.ok("get", "cq", "-o", "json"))
    assert (listed["kind"], [item["metadata"]["name"] for item in listed["items"]]) == ("List", ["vision"])
    assert await shared_queues.ok("get", "cq", "-o", "name") == "clusterqueue.sluice.dev/vision\n"
    path = "{.spec.resourceGroups[0].flavors[0].resources[0].nominalQuota}"
    assert await shared_queues.ok("get", "cq", "vision", "-o", f"jsonpath={path}") == "4"
    columns = "custom-columns=N:.metadata.name,Q:.spec.clusterQueue"
    assert (await shared_queues.ok("get", "lq", "-o", columns)).split() == ["N", "Q", "main", "vision"]


@pytest.mark.long
async def test_get_supports_label_and_field_selectors_and_chunks(queues):
    await queues.ok("create", "-f", "-", stdin='{"apiVersion":"sluice.dev/v1","kind":"Cohort","metadata":{"name":"b"}}')
    assert await queues.ok("get", "cq", "-l", "team=a", "-o", "name") == "clusterqueue.sluice.dev/vision\n"
    assert await queues.ok("get", "cq", "-l", "team notin (a)", "-o", "name") == ""
    assert await queues.ok("get", "co", "--field-selector", "metadata.name!=b", "-o", "name") == (
        "cohort.sluice.dev/research\n"
    )
    assert await queues.ok("get", "co", "--chunk-size=1", "-o", "name") == (
        "cohort.sluice.dev/b\ncohort.sluice.dev/research\n"
    )
    said = await queues("get", "cq", "--field-selector", "spec.nothing=x")
    assert said.code == 1
    assert "field label not supported: spec.nothing" in said.err


@reading
async def test_get_reports_missing_objects_and_empty_lists(shared_queues):
    said = await shared_queues("get", "cq", "nothing")
    assert (said.code, said.err.startswith("Error from server (NotFound): ")) == (1, True)
    said = await shared_queues("get", "wl")
    assert (said.code, said.err) == (0, "No resources found in default namespace.\n")
    said = await shared_queues("get", "cohorts", "-l", "a=b")
    assert (said.code, said.err) == (0, "No resources found\n")


@pytest.mark.long
async def test_get_watch_shows_changes_as_they_come(queues):
    watching = await queues.start("get", "cq", "-w", "-o", 'jsonpath={.metadata.name} {.metadata.labels.x}{"\\n"}')
    assert watching.stdout is not None
    assert (await watching.stdout.readline()).decode() == "vision \n"
    for value in ("1", "2"):
        await queues.ok("label", "--overwrite", "cq", "vision", f"x={value}")
        assert (await watching.stdout.readline()).decode() == f"vision {value}\n"
    watching.terminate()
    await watching.communicate()


async def test_get_watch_prints_table_rows(queues):
    watching = await queues.start("get", "cq", "-w")
    assert watching.stdout is not None
    header, row = [(await watching.stdout.readline()).decode() for _ in range(2)]
    assert rows(header + row)[1] == ["vision", "research", "0", "0", "True"]
    await queues.ok("patch", "cq", "vision", "--type=merge", "-p", '{"spec":{"cohortName":"other"}}')
    changed = (await watching.stdout.readline()).decode()
    assert rows(header + changed)[1] == ["vision", "other", "0", "0", "True"]
    watching.terminate()
    await watching.communicate()


@reading
async def test_describe_shows_metadata_spec_and_conditions(shared_queues):
    text = await shared_queues.ok("describe", "cq", "vision")
    for line in (
        "Name:         vision",
        "Labels:       team=a",
        "API Version:  sluice.dev/v1",
        "Kind:         ClusterQueue",
    ):
        assert line in text
    assert re.search(r"Cohort Name: +research", text)
    assert re.search(r"Nominal Quota: +4", text)
    assert re.search(r"Message: +Can admit new workloads", text)


@pytest.mark.long
async def test_wait_ends_when_the_condition_holds(queues):
    assert await queues.ok("wait", "--for=condition=Active", "cq/vision", "--timeout=120s") == (
        "clusterqueue.sluice.dev/vision condition met\n"
    )
    waiting = await queues.start("wait", "--for=condition=Active=false", "cq/vision", "--timeout=120s")
    await queues.ok("patch", "cq", "vision", "--type=merge", "-p", '{"spec":{"stopPolicy":"Hold"}}')
    out, err = await waiting.communicate()
    assert (waiting.returncode, out.decode(), err) == (0, "clusterqueue.sluice.dev/vision condition met\n", b"")
    waiting = await queues.start("wait", "--for=delete", "lq/main", "--timeout=120s")
    await queues.ok("delete", "lq", "main")
    out, err = await waiting.communicate()
    # kubectl prints nothing if the object was gone before its first request.
    assert out.decode() in ("", "localqueue.sluice.dev/main condition met\n")
    assert (waiting.returncode, err) == (0, b"")


@reading
async def test_explain_prints_fields_with_descriptions(shared_queues):
    text = await shared_queues.ok("explain", "cq")
    assert text.startswith("GROUP:      sluice.dev\nKIND:       ClusterQueue\nVERSION:    v1\n")
    for field in ("apiVersion", "kind", "metadata", "spec", "status"):
        assert re.search(rf"^  {field}\t<", text, re.MULTILINE), field
    text = await shared_queues.ok("explain", "clusterqueue.spec.preemption")
    assert "FIELDS:" in text
    assert re.search(r"^  reclaimWithinCohort\t<string>\n(  enum: .*\n)?    \w", text, re.MULTILINE)
    for field in ("localqueue.spec.clusterQueue", "cohort.spec", "workload.spec.priority", "rf.spec.nodeLabels"):
        text = await shared_queues.ok("explain", field)
        assert "<no description>" not in text.split("FIELDS:")[0], text
    recursive = await shared_queues.ok("explain", "clusterqueue", "--recursive")
    assert "nominalQuota" in recursive


async def test_auth_can_i_answers_for_queues(queues):
    assert await queues.ok("auth", "can-i", "get", "lq") == "yes\n"
    said = await queues("auth", "can-i", "get", "lq", user="alice")
    assert (said.code, said.out) == (1, "no\n")
    await let_alice_read_local_queues(queues)
    assert await queues.ok("auth", "can-i", "get", "lq", user="alice") == "yes\n"
    assert "localqueues.sluice.dev" in await queues.ok("auth", "can-i", "--list", user="alice")


async def let_alice_read_local_queues(kubectl) -> None:
    group = "rbac.authorization.k8s.io"
    role = {"rules": [{"apiGroups": ["sluice.dev"], "resources": ["localqueues"], "verbs": ["get", "list", "watch"]}]}
    binding = {
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "lqs"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "alice"}],
    }
    for kind, content in (("Role", role), ("RoleBinding", binding)):
        manifest = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "lqs"}, **content}
        await kubectl.ok("create", "--validate=false", "-f", "-", stdin=json.dumps(manifest))


@pytest.mark.long
async def test_rbac_restricts_reading_of_queue_objects(queues):
    said = await queues("get", "lq", user="alice")
    assert said.err == (
        'Error from server (Forbidden): localqueues.sluice.dev is forbidden: User "alice" cannot list resource '
        '"localqueues" in API group "sluice.dev" in the namespace "default"\n'
    )
    await let_alice_read_local_queues(queues)
    assert await queues.ok("get", "lq", "-o", "name", user="alice") == "localqueue.sluice.dev/main\n"
    for forbidden in (("get", "cq"), ("get", "lq", "-A"), ("delete", "lq", "main"), ("get", "lq", "--as=bob")):
        said = await queues(*forbidden, user="alice")
        assert (said.code, "(Forbidden)" in said.err) == (1, True), forbidden


async def test_impersonated_user_and_groups_are_authorized_and_audited(queues, store):
    said = await queues("get", "lq", "--as=alice")
    assert 'User "alice" cannot list' in said.err
    await queues.ok("label", "lq", "main", "by=x", "--as=alice", "--as-group=system:masters")
    (record,) = (await store.audit.list(limit=1)).records
    assert (record.user, record.groups, record.verb) == ("alice", ("system:masters", "system:authenticated"), "patch")


@reading
async def test_subresources_are_available_by_raw_path(shared_queues):
    path = "/apis/sluice.dev/v1/clusterqueues/vision"
    answer = json.loads(await shared_queues.ok("get", "--raw", f"{path}/pendingworkloads"))
    assert (answer["kind"], answer["items"]) == ("PendingWorkloadsSummary", [])
    answer = json.loads(await shared_queues.ok("get", "--raw", f"{path}/history"))
    assert [item["operation"] for item in answer["items"]] == ["create"]
    answer = json.loads(await shared_queues.ok("get", "--raw", "/apis/sluice.dev/v1/auditrecords"))
    assert {item["user"] for item in answer["items"]} == {"admin"}


async def test_get_auditrecords_prints_a_table_and_requires_permission(queues):
    await queues.ok("annotate", "cq", "vision", "sluice.dev/change-reason=more people")
    table = rows(await queues.ok("get", "auditrecords", "--field-selector", "kind=ClusterQueue"))
    assert table[0] == ["NAME", "USER", "VERB", "KIND", "NAMESPACE", "OBJECT", "REASON"]
    assert [row[1:] for row in table[1:]] == [
        ["admin", "patch", "ClusterQueue", "vision", "more people"],
        ["admin", "create", "ClusterQueue", "vision"],
    ]
    said = await queues("get", "auditrecords", user="alice")
    assert (said.code, "(Forbidden)" in said.err) == (1, True)
