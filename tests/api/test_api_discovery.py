"""What clients and probes ask before anything else."""

from __future__ import annotations

import pytest
from api_client import serving


async def test_the_group_is_discovered(api):
    groups = (await api.get("/apis")).body
    assert [group["name"] for group in groups["groups"]] == ["sluice.dev"]
    group = (await api.get("/apis/sluice.dev")).body
    assert (group["kind"], group["preferredVersion"]["groupVersion"]) == ("APIGroup", "sluice.dev/v1")


async def test_every_resource_is_discovered_and_listed_where_discovery_says(api):
    listed = (await api.get("/apis/sluice.dev/v1")).body
    assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", "sluice.dev/v1")
    by_name = {row["name"]: row for row in listed["resources"]}
    assert set(by_name) == {
        "clusterqueues", "cohorts", "localqueues", "resourceflavors", "workloadpriorityclasses", "workloads",
    }  # fmt: skip
    assert by_name["workloads"]["verbs"] == ["get", "list"]
    assert by_name["clusterqueues"]["shortNames"] == ["cq"]
    for row in listed["resources"]:
        answer = await api.get(row["name"])
        assert answer.status == 200
        assert answer.body["kind"] == f"{row['kind']}List"
        assert (await api.get(f"namespaces/a/{row['name']}")).status == (200 if row["namespaced"] else 404)


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
async def test_probes_need_no_token(api, path):
    answer = await api.get(path, headers={})
    assert (answer.status, answer.body) == (200, "ok")


async def test_a_failed_check_is_named_and_explained_to_the_admin_only(store):
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
        # A restart would not bring the cluster back.
        assert (await api.get("/livez", headers={})).status == 200


async def test_verbose_names_the_checks_that_passed(store):
    async with serving(store, database=store.health) as api:
        answer = await api.get("/readyz", params={"verbose": ""})
        assert answer.body.splitlines() == ["[+]ping ok", "[+]database ok", "readyz check passed"]
