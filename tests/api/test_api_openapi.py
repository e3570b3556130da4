"""The OpenAPI document: complete, generated from the models, and matched by the responses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from api_client import PREFIX, TOKEN
from queue_objects import admission_check, cluster_queue, cohort, flavor, local_queue, manifest, priority_class
from workload_records import NOW, NOW_TEXT, record

from admission.api.application import create_app
from admission.api.kinds import object_schemas
from admission.api.kinds.object_schemas import SubscriptionStatus
from admission.api.openapi import report_schemas
from admission.model import answers
from admission.store.records import State

OWN = "dev.sluice.v1."


@pytest.fixture
async def document(api) -> dict[str, Any]:
    index = (await api.get("/openapi/v3")).body
    return (await api.get(index["paths"]["apis/sluice.dev/v1"]["serverRelativeURL"])).body


async def test_openapi_document_is_cacheable_at_the_url_of_its_content_hash(api):
    url = (await api.get("/openapi/v3")).body["paths"]["apis/sluice.dev/v1"]["serverRelativeURL"]
    answer = await api.get(url)
    assert "immutable" in answer.headers["Cache-Control"]
    headers = {"Authorization": f"Bearer {TOKEN}", "If-None-Match": answer.headers["Etag"]}
    assert (await api.get(url, headers=headers)).status == 304
    plain = await api.get("/openapi/v3/apis/sluice.dev/v1")
    assert plain.body == answer.body
    assert "immutable" not in plain.headers["Cache-Control"]
    assert (await api.get("/openapi/v2")).status == 404


def nodes(schema: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, dict):
        yield path, schema
        for key, value in schema.items():
            yield from nodes(value, f"{path}/{key}")
    elif isinstance(schema, list):
        for index, value in enumerate(schema):
            yield from nodes(value, f"{path}/{index}")


async def test_every_schema_and_field_has_a_description(document):
    schemas = document["components"]["schemas"]
    undescribed = [name for name, schema in schemas.items() if not schema.get("description")]
    for name, schema in schemas.items():
        fields = schema.get("properties", {}).items()
        undescribed += [f"{name}.{field}" for field, value in fields if not value.get("description")]
    assert undescribed == []
    spec = schemas[f"{OWN}ClusterQueue"]["properties"]["spec"]
    assert spec["allOf"] == [{"$ref": f"#/components/schemas/{OWN}ClusterQueueSpec"}]
    within = schemas[f"{OWN}Preemption"]["properties"]["withinClusterQueue"]
    assert within["enum"] == ["Never", "LowerPriority", "LowerOrNewerEqualPriority"]


async def test_document_uses_only_schema_keywords_of_openapi_3_0(document):
    schemas = document["components"]["schemas"]
    for path, node in nodes({"schemas": schemas, "paths": document["paths"]}, ""):
        if "$ref" in node and not path.endswith("properties"):
            assert node.keys() == {"$ref"}, path
            assert node["$ref"].rpartition("/")[2] in schemas, path
        if not path.endswith("/properties"):
            assert not node.keys() & {"const", "propertyNames", "$defs", "prefixItems"}, path
            assert node.get("type") != "null", path
            assert not isinstance(node.get("exclusiveMaximum"), int), path
    for kind in ("ClusterQueue", "Workload", "ClusterQueueList", "AuditRecord"):
        (found,) = schemas[f"{OWN}{kind}"]["x-kubernetes-group-version-kind"]
        assert found == {"group": "sluice.dev", "version": "v1", "kind": kind}


async def test_every_route_is_in_the_document(document, store):
    served = set()
    for route in create_app(store, token="t", checks={}).router.routes():
        path = route.resource.canonical if route.resource else ""
        if path.startswith(f"{PREFIX}/") and route.method != "HEAD":
            served.add((route.method.lower(), path))
    methods = ("get", "put", "post", "delete", "patch")
    described = {(method, path) for path, entry in document["paths"].items() for method in methods if method in entry}
    assert described == served
    operations = [entry[method] for entry in document["paths"].values() for method in methods if method in entry]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    patch = document["paths"][f"{PREFIX}/clusterqueues/{{name}}"]["patch"]
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "ClusterQueue"


# ---------------------------------------------------------------------- responses match their schemas


async def test_status_of_queue_objects_matches_its_schema(api, commit):
    await api.post("resourceflavors", flavor("default"))
    await api.post("clusterqueues", cluster_queue("one"))
    await api.post("namespaces/a/localqueues", local_queue("main", "a", "one"))
    await api.post("admissionchecks", admission_check("check"))
    told = {"receiver": "pager", "events": ["Admitted"]}
    await api.post("namespaces/a/subscriptions", manifest("Subscription", "mine", namespace="a", spec=told))
    await commit(record("u1", "run", State.ADMITTED, admitted_at=NOW))
    for path, model in [
        ("clusterqueues/one", object_schemas.ClusterQueueStatus),
        ("namespaces/a/localqueues/main", object_schemas.LocalQueueStatus),
        ("admissionchecks/check", object_schemas.AdmissionCheckStatus),
        ("namespaces/a/subscriptions/mine", SubscriptionStatus),
    ]:
        model.model_validate((await api.get(path)).body["status"])
    dry = await api.patch("clusterqueues/one", {"spec": {"stopPolicy": "HoldAndDrain"}}, dryRun="All")
    assert object_schemas.ClusterQueueStatus.model_validate(dry.body["status"]).impact is not None
    dry = await api.post("cohorts", cohort("root"), params={"dryRun": "All"})
    object_schemas.CohortStatus.model_validate(dry.body["status"])


async def test_workloads_match_their_schema(api, commit):
    await commit(
        record("u1", "train", reason="ExceedsQuota", message="x"),
        record("u2", "run", State.ADMITTED, admitted_at=NOW, ready_at=NOW, unready_at=NOW),
        record("u3", "stop", State.EVICTING, admitted_at=NOW, evict_reason="Preempted"),
        record("u4", "done", State.FINISHED, finished_at=NOW, outcome="Succeeded"),
        replace(record("u5", "back", evict_reason="PodsReadyTimeout"), requeues=2, not_before=NOW, past_seconds=9.0),
    )
    items = (await api.get("workloads")).body["items"]
    assert len(items) == 5
    for item in items:
        object_schemas.WorkloadSpec.model_validate(item["spec"])
        object_schemas.WorkloadStatus.model_validate(item["status"])


async def test_subresources_and_reports_match_their_schemas(api, commit, clock):
    await api.post("resourceflavors", flavor("default"))
    await api.post("clusterqueues", cluster_queue("one"))
    await api.put("clusterqueues/one", cluster_queue("one", cpu="5"))
    await api.post("namespaces/a/localqueues", local_queue("main", "a", "one"))
    await api.post("workloadpriorityclasses", priority_class("high", 7))
    await commit(record("u1", "train"), record("u2", "run", State.ADMITTED, admitted_at=NOW))

    def own(body: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in body.items() if name not in ("apiVersion", "kind", "metadata")}

    for path, model in [
        ("clusterqueues/one/pendingworkloads", answers.PendingWorkloadsSummary),
        ("namespaces/a/localqueues/main/pendingworkloads", answers.PendingWorkloadsSummary),
        ("clusterqueues/one/calendar", report_schemas.CalendarPreview),
        ("namespaces/a/workloads/train/explain", answers.WorkloadExplanation),
        ("namespaces/a/workloads/run/explain", answers.WorkloadExplanation),
        ("namespaces/a/workloads/run/history", answers.WorkloadHistory),
        ("clusterqueues/one/history", answers.HistoryList),
        ("workloadpriorityclasses/high/history", answers.HistoryList),
    ]:  # fmt: skip
        answer = await api.get(path)
        assert answer.status == 200, answer.body
        model.model_validate(own(answer.body))
    clock.advance(3600)
    for query in ("by=resource", "by=user,queue,kind", "by=workload&top=1", "by=flavor&period=month"):
        report = (await api.get(f"reports/usage?from={NOW_TEXT}&{query}")).body
        assert report_schemas.UsageReport.model_validate(own(report)).items
    (audited, *_) = (await api.get("auditrecords")).body["items"]
    report_schemas.AuditRecord.model_validate(own(audited))
