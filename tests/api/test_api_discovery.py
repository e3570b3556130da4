"""Discovery of the API group and its resources, and probes of liveness and readiness."""

from __future__ import annotations

import pytest
from api_client import TOKEN, serving


async def test_discovery_lists_the_api_group(api):
    groups = (await api.get("/apis")).body
    assert [group["name"] for group in groups["groups"]] == ["sluice.dev"]
    group = (await api.get("/apis/sluice.dev")).body
    assert (group["kind"], group["preferredVersion"]["groupVersion"]) == ("APIGroup", "sluice.dev/v1")


async def test_discovery_lists_every_resource_with_its_verbs_and_scope(api):
    listed = (await api.get("/apis/sluice.dev/v1")).body
    assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", "sluice.dev/v1")
    by_name = {row["name"]: row for row in listed["resources"]}
    assert {name for name in by_name if "/" not in name} == {
        "admissionchecks", "auditrecords", "audits", "budgetrequests", "budgets", "clusterqueues", "clusters",
        "cohorts", "drains", "localqueues",
        "pricebooks", "provisioningrequestconfigs", "reports", "reservations", "resourceflavors",
        "subscriptions", "topologies", "userlimits", "whatifs", "workloadpriorityclasses", "workloads",
    }  # fmt: skip
    assert by_name["workloads"]["verbs"] == ["get", "list", "patch", "watch"]
    assert by_name["workloads/status"]["verbs"] == ["get", "patch"]
    assert by_name["clusterqueues"]["shortNames"] == ["cq"]
    for row in listed["resources"]:
        if "list" not in row["verbs"]:
            continue
        answer = await api.get(row["name"])
        assert answer.status == 200
        assert answer.body["kind"] == f"{row['kind']}List"
        assert (await api.get(f"namespaces/a/{row['name']}")).status == (200 if row["namespaced"] else 404)


@pytest.mark.parametrize("version", ["v2", "v2beta1"])
async def test_aggregated_discovery_is_served_on_request(api, version):
    form = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": f"{form.format(version)},application/json"}
    answer = await api.get("/apis", headers=headers)
    assert answer.body["apiVersion"] == f"apidiscovery.k8s.io/{version}"
    (group,) = answer.body["items"]
    assert group["metadata"] == {"name": "sluice.dev"}
    plain = {row["name"]: row for row in (await api.get("/apis/sluice.dev/v1")).body["resources"]}
    found = {}
    for row in group["versions"][0]["resources"]:
        found[row["resource"]] = row["verbs"]
        for sub in row.get("subresources", ()):
            found[f"{row['resource']}/{sub['subresource']}"] = sub["verbs"]
    assert found == {name: row["verbs"] for name, row in plain.items()}

    again = await api.get("/apis", headers=headers | {"If-None-Match": answer.headers["Etag"]})
    assert again.status == 304
    assert (await api.get("/apis")).body["kind"] == "APIGroupList"


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
async def test_probes_need_no_token(api, path):
    answer = await api.get(path, headers={})
    assert (answer.status, answer.body) == (200, "ok")


async def test_cause_of_a_failed_readiness_check_is_shown_to_the_admin_only(store):
    async def down():
        return "the API server does not answer"

    async with serving(store, database=store.health, cluster=down) as api:
        told = await api.get("/readyz")
        assert told.status == 503
        assert told.body.splitlines() == [
            "[+]ping ok",
            "[+]database ok",
            "[-]cluster failed: the API server does not answer",
            "readyz check failed",
        ]
        stranger = await api.get("/readyz", headers={})
        assert stranger.status == 503
        assert "[-]cluster failed: reason withheld" in stranger.body
        # Liveness does not depend on the cluster, as a restart would not help.
        assert (await api.get("/livez", headers={})).status == 200


async def test_verbose_readyz_names_the_passed_checks(store):
    async with serving(store, database=store.health) as api:
        answer = await api.get("/readyz", params={"verbose": ""})
        assert answer.body.splitlines() == ["[+]ping ok", "[+]database ok", "readyz check passed"]
