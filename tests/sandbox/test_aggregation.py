"""APIServices: an aggregated API server as seen by clients of the sandbox, and the requests that it receives."""

import base64
import json

import aiohttp
import pytest
import yaml
from apple_server import PREFIX, apple_server
from yarl import URL

from tests.user_permissions import allow

NAME = "v1.fruit.example.com"
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def api_service(**spec):
    wanted = {"group": "fruit.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}
    return {"metadata": {"name": NAME}, "spec": {**wanted, **spec}}


def service(port, *, host="127.0.0.1", name="apples"):
    return {"metadata": {"name": name}, "spec": {"type": "ExternalName", "externalName": host}}


async def wait_for_condition(sandbox, status, reason=None):
    """Wait for an APIService's condition with this status and, if given, reason; return the condition."""
    watcher = sandbox.local("tester").watch("apiservices")
    async for batch in watcher:
        for _, _, obj, _ in batch:
            for condition in obj.get("status", {}).get("conditions", ()):
                if condition["status"] == status and reason in (None, condition["reason"]):
                    watcher.close()
                    return condition
    raise AssertionError


async def register(sandbox, served, **spec):
    client = sandbox.local("tester")
    await client.create("services", "default", service(served.port))
    reference = {"name": "apples", "namespace": "default", "port": served.port}
    trust = spec or {"caBundle": base64.b64encode(served.ca.encode()).decode()}
    await client.create("apiservices", "", api_service(service=reference, **trust))


@pytest.fixture
def config(sandbox):
    return sandbox.local("tester").get("configmaps", "kube-system", "extension-apiserver-authentication")["data"]


@pytest.fixture
async def served(config, tmp_path):
    async with apple_server(tmp_path, config["requestheader-client-ca-file"]) as running:
        yield running


@pytest.fixture
async def registered(sandbox, served):
    await register(sandbox, served)
    await wait_for_condition(sandbox, "True")
    served.seen.clear()
    return served


async def test_front_proxy_settings_are_published_in_the_authentication_configmap(config):
    assert json.loads(config["requestheader-allowed-names"]) == ["front-proxy-client"]
    assert json.loads(config["requestheader-username-headers"]) == ["X-Remote-User"]
    assert json.loads(config["requestheader-group-headers"]) == ["X-Remote-Group"]
    assert json.loads(config["requestheader-extra-headers-prefix"]) == ["X-Remote-Extra-"]
    assert config["requestheader-client-ca-file"] != config["client-ca-file"]


async def test_request_is_proxied_with_user_headers_and_without_token(registered, sandbox, http):
    headers = {
        "Impersonate-User": "carol", "Impersonate-Group": "growers", "Impersonate-Extra-Scopes": "eat",
        "Impersonate-Uid": "77", "X-Remote-User": "root", "X-Remote-Group": "system:masters",
        "X-Remote-Extra-Forged": "1", "X-Test": "kept",
    }  # fmt: skip
    await allow_apples(sandbox, "carol", "create")
    body = {"metadata": {"name": "boskoop"}, "spec": {"colour": "red"}}
    url = f"{PREFIX}/apples?fieldManager=a%2Fb&x=1&x=2"
    async with http.post(URL(sandbox.url + url, encoded=True), json=body, headers=headers) as response:
        assert response.status == 201
        assert response.headers.getall("Warning") == ['299 - "apples are heavy"']
        assert (await response.json())["spec"] == {"colour": "red"}

    method, path, got, certificate = registered.seen[-1]
    assert (method, path, certificate) == ("POST", url, "front-proxy-client")
    assert got.getall("X-Remote-User") == ["carol"]
    assert got.getall("X-Remote-Group") == ["growers", "system:authenticated"]
    assert got.getall("X-Remote-Uid") == ["77"]
    assert got.getall("X-Remote-Extra-scopes") == ["eat"]
    assert got["X-Test"] == "kept"
    assert not {"Authorization", "X-Remote-Extra-Forged", "Impersonate-User", "Impersonate-Group"} & set(got)


async def allow_apples(sandbox, user, *verbs):
    rule = {"apiGroups": ["fruit.example.com"], "resources": ["apples"], "verbs": list(verbs)}
    await allow(sandbox.local("tester"), user, rule)


async def test_forbidden_request_is_not_proxied_to_the_aggregated_server(registered, sandbox, http):
    alice = {"Authorization": "Bearer alice-token"}
    async with http.get(f"{PREFIX}/apples", headers=alice) as response:
        assert response.status == 403
        assert (
            'User "alice" cannot list resource "apples" in API group "fruit.example.com"'
            in (await response.json())["message"]
        )
    assert not [path for _, path, _, _ in registered.seen if path.startswith(f"{PREFIX}/apples")]

    await allow_apples(sandbox, "alice", "list")
    async with http.get(f"{PREFIX}/apples", headers=alice) as response:
        assert response.status == 200


async def test_responses_of_the_aggregated_server_are_returned_unchanged(registered, http):
    async with http.get(f"{PREFIX}/apples/none") as response:
        assert (response.status, (await response.json())["reason"]) == (404, "NotFound")
    async with http.get(f"{PREFIX}/teapots") as response:
        assert response.status == 418
    registered.apples["a"] = registered.apple("a", colour="red")
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    async with http.get(f"{PREFIX}/apples", headers=table) as response:
        assert (await response.json())["kind"] == "Table"


@pytest.mark.parametrize(("when", "done"), [("before", False), ("after", True)])
async def test_fault_occurs_before_or_after_the_aggregated_server_handles_the_request(
    registered, sandbox, http, when, done
):
    match = {"verb": "create", "resource": "apples"}
    sandbox.faults.install({"rules": [{"match": match, "do": "error", "code": 504, "when": when}]})
    body = {"metadata": {"name": "boskoop"}, "spec": {"colour": "red"}}
    async with http.post(f"{PREFIX}/apples", json=body) as response:
        assert (response.status, (await response.json())["reason"]) == (504, "Timeout")
    assert ("boskoop" in registered.apples) is done


async def test_aborted_upstream_response_reaches_the_client_as_incomplete(registered, http):
    async with http.get(f"{PREFIX}/apples", params={"watch": "1"}) as response:
        registered.events.put_nowait(b'{"type":"ADDED"}\n')
        await response.content.readline()
        registered.cut = True
        registered.events.put_nowait(b"x")
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.read()


async def test_client_disconnect_ends_the_upstream_request(registered, http):
    async with http.get(f"{PREFIX}/apples", params={"watch": "1"}) as response:
        registered.events.put_nowait(b'{"type":"ADDED"}\n')
        await response.content.readline()
        response.close()
    await registered.ended.wait()


async def test_a_watch_is_passed_through_line_by_line(registered, http):
    async with http.get(f"{PREFIX}/apples", params={"watch": "1"}) as response:
        for text in (b'{"type":"ADDED"}\n', b'{"type":"MODIFIED"}\n'):
            registered.events.put_nowait(text)
            assert await response.content.readline() == text
        registered.events.put_nowait(b"")
        assert await response.content.read() == b""


@pytest.mark.parametrize("aggregated", [True, False])
async def test_discovery_lists_the_aggregated_group_beside_built_in_groups(sandbox, served, http, aggregated):
    served.aggregated = aggregated
    await register(sandbox, served)
    await wait_for_condition(sandbox, "True")

    async with http.get("/apis") as response:
        names = [group["name"] for group in (await response.json())["groups"]]
    assert {"batch", "fruit.example.com"} <= set(names)
    async with http.get("/apis/fruit.example.com") as response:
        assert (await response.json())["preferredVersion"]["groupVersion"] == "fruit.example.com/v1"
    async with http.get("/apis", headers={"Accept": AGGREGATED}) as response:
        items = {item["metadata"]["name"]: item for item in (await response.json())["items"]}
    (version,) = items["fruit.example.com"]["versions"]
    (resource,) = version["resources"]
    assert version["freshness"] == "Current"
    assert (resource["resource"], resource["scope"], resource["shortNames"]) == ("apples", "Cluster", ["ap"])
    assert resource["responseKind"]["kind"] == "Apple"
    assert [sub["subresource"] for sub in resource.get("subresources", ())] == ([] if aggregated else ["status"])


async def test_openapi_index_has_both_servers_and_the_aggregated_schema_is_served(registered, http):
    async with http.get("/openapi/v3") as response:
        paths = (await response.json())["paths"]
    assert "apis/batch/v1" in paths
    async with http.get(paths["apis/fruit.example.com/v1"]["serverRelativeURL"]) as response:
        assert "Apple" in (await response.json())["components"]["schemas"]


@pytest.mark.virtual_time
async def test_available_condition_follows_the_state_of_the_aggregated_server(sandbox, config, tmp_path, http):
    async with apple_server(tmp_path, config["requestheader-client-ca-file"]) as served:
        await register(sandbox, served)
        passed = await wait_for_condition(sandbox, "True")
        assert (passed["reason"], passed["message"]) == ("Passed", "all checks passed")
        user = served.last_headers("GET", PREFIX).getall("X-Remote-User")
        assert (user, served.seen[0][3]) == (["system:kube-aggregator"], "front-proxy-client")
    failed = await wait_for_condition(sandbox, "False")
    assert failed["reason"] == "FailedDiscoveryCheck"
    assert failed["message"].startswith(f"failing or missing response from https://127.0.0.1:{served.port}{PREFIX}: ")
    async with http.get(f"{PREFIX}/apples") as response:
        assert (response.status, await response.text()) == (503, "service unavailable\n")
    async with http.get("/apis", headers={"Accept": AGGREGATED}) as response:
        items = {item["metadata"]["name"]: item for item in (await response.json())["items"]}
    assert items["fruit.example.com"]["versions"][0]["freshness"] == "Stale"


@pytest.mark.virtual_time
async def test_server_stopped_between_probes_causes_503_and_condition_false(sandbox, config, tmp_path, http):
    async with apple_server(tmp_path, config["requestheader-client-ca-file"]) as served:
        await register(sandbox, served)
        await wait_for_condition(sandbox, "True")
    async with http.get(f"{PREFIX}/apples") as response:
        assert response.status == 503
    assert (await wait_for_condition(sandbox, "False"))["reason"] == "FailedDiscoveryCheck"


@pytest.mark.parametrize(
    ("name", "spec", "reason", "text"),
    [
        ("wrong.default.svc", {}, "FailedDiscoveryCheck", "certificate"),
        ("apples.default.svc", {"caBundle": "bm90IGEgY2VydGlmaWNhdGU="}, "FailedDiscoveryCheck", "root certificates"),
    ],
)
async def test_server_with_untrusted_certificate_is_not_available(sandbox, config, tmp_path, name, spec, reason, text):
    async with apple_server(tmp_path, config["requestheader-client-ca-file"], name=name) as served:
        await register(sandbox, served, **spec)
        failed = await wait_for_condition(sandbox, "False")
    assert failed["reason"] == reason
    assert text in failed["message"]


async def test_insecure_skip_tls_verify_disables_certificate_verification(sandbox, config, tmp_path):
    async with apple_server(tmp_path, config["requestheader-client-ca-file"], name="wrong") as served:
        await register(sandbox, served, insecureSkipTLSVerify=True)
        assert (await wait_for_condition(sandbox, "True"))["reason"] == "Passed"


async def test_api_service_is_unavailable_until_its_service_exists_and_is_reachable(sandbox, served):
    client = sandbox.local("tester")
    reference = {"name": "apples", "namespace": "default", "port": served.port}
    bundle = base64.b64encode(served.ca.encode()).decode()
    await client.create("apiservices", "", api_service(service=reference, caBundle=bundle))
    missing = await wait_for_condition(sandbox, "False", "ServiceNotFound")
    assert missing["message"] == 'service/apples in "default" is not present'
    await client.create("services", "default", {"metadata": {"name": "apples"}, "spec": {"type": "ClusterIP"}})
    await wait_for_condition(sandbox, "False", "EndpointsNotFound")
    await client.delete("services", "default", "apples")
    await client.create("services", "default", service(served.port))
    await wait_for_condition(sandbox, "True")


async def test_deleted_api_service_is_no_longer_served_or_listed(registered, sandbox, http):
    await sandbox.local("tester").delete("apiservices", "", NAME)
    async with http.get("/api/v1/namespaces") as response:
        assert response.status == 200
    async with http.get(f"{PREFIX}/apples") as response:
        assert (response.status, await response.text()) == (404, "404 page not found\n")
    async with http.get("/apis") as response:
        assert "fruit.example.com" not in await response.text()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"version": "v2"}, "metadata.name"),
        ({"groupPriorityMinimum": 0}, "spec.groupPriorityMinimum"),
        ({"versionPriority": 1001}, "spec.versionPriority"),
        ({"caBundle": "YQ=="}, "spec.caBundle"),
        ({"service": {"name": "apples"}}, "spec.service.namespace"),
        ({"service": {"name": "a", "namespace": "b", "port": 70000}}, "spec.service.port"),
        (
            {"service": {"name": "a", "namespace": "b"}, "insecureSkipTLSVerify": True, "caBundle": "YQ=="},
            "spec.insecureSkipTLSVerify",
        ),
    ],
)
async def test_invalid_api_service_is_rejected_with_the_field_name(http, change, field):
    async with http.post(SERVICES, json=api_service(**change)) as response:
        assert response.status == 422
        assert [cause["field"] for cause in (await response.json())["details"]["causes"]] == [field]


async def test_an_api_service_without_a_service_is_local(http):
    async with http.post(SERVICES, json=api_service()) as response:
        (condition,) = (await response.json())["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "Local")


# ---------------------------------------------------------------------- kubectl


@pytest.mark.costly
async def test_kubectl_works_with_resources_of_an_aggregated_server(registered, sandbox, kubectl, tmp_path):
    manifest = tmp_path / "apple.yaml"
    apple = {"kind": "Apple", "apiVersion": "fruit.example.com/v1", "metadata": {"name": "boskoop"}}
    manifest.write_text(yaml.safe_dump({**apple, "spec": {"colour": "red"}}))
    applied = await kubectl(sandbox, "apply", "-f", str(manifest))
    assert "Warning: apples are heavy" in applied
    assert "apple.fruit.example.com/boskoop created" in applied
    assert (await kubectl(sandbox, "get", "ap")).split() == ["NAME", "COLOUR", "boskoop", "red"]
    assert (await kubectl(sandbox, "get", "apples", "boskoop", "-o", "jsonpath={.spec.colour}")) == "red"
    assert "What it looks like." in await kubectl(sandbox, "explain", "apples.spec")
    available = ["default/apples", "True"]
    assert (await kubectl(sandbox, "get", "apiservices", NAME)).split("\n")[1].split()[1:3] == available
    await kubectl(sandbox, "wait", "--for=condition=Available", f"apiservice/{NAME}", "--timeout=60s")
