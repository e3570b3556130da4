"""The sandbox's API server and local client, beyond the recorded cases."""

import json
from contextlib import closing

import pytest
import yaml

from admission.sandbox import DEFAULT_USERS, ApiError, Sandbox, SandboxError, User

JOBS = "/apis/batch/v1/namespaces/default/jobs"


def job(name, **spec):
    containers = [{"name": "main", "image": "registry.example/app:1"}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    return {"metadata": {"name": name}, "spec": {"suspend": True, "template": template, **spec}}


async def first_lines(response, count):
    return [json.loads(await response.content.readline()) for _ in range(count)]


async def test_server_certificate_is_signed_by_the_published_ca(http):
    async with http.get("/version") as response:
        assert (await response.json())["minor"] == "36"


async def test_requests_are_counted_by_method_resource_and_user(sandbox, http):
    async with http.post(JOBS, json=job("a")) as response:
        assert response.status == 201
    patch = {"Content-Type": "application/merge-patch+json"}
    async with http.patch(f"{JOBS}/a/status", json={"status": {"active": 1}}, headers=patch) as response:
        assert response.status == 200

    assert sandbox.requests == {("POST", "jobs", "admin"): 1, ("PATCH", "jobs/status", "admin"): 1}


async def test_watch_from_expired_version_ends_with_410(sandbox, http):
    async with http.get(JOBS) as response:
        version = (await response.json())["metadata"]["resourceVersion"]
    await sandbox.local("tester").create("jobs", "default", job("a"))
    sandbox.expire_history()

    async with http.get(JOBS, params={"watch": "1", "resourceVersion": version}) as response:
        (event,) = await first_lines(response, 1)
        rest = await response.content.read()
    assert (event["type"], event["object"]["code"], rest) == ("ERROR", 410, b"")


@pytest.mark.parametrize("version", ["²", "1" * 5000])
@pytest.mark.parametrize(("watch", "code"), [("0", 400), ("1", 500)])
async def test_resource_version_that_is_no_number_is_refused_as_by_kubernetes(http, version, watch, code):
    params = {"watch": watch, "resourceVersion": version, "resourceVersionMatch": "" if watch == "1" else "Exact"}
    async with http.get(JOBS, params=params) as response:
        assert response.status == code
        assert "invalid syntax" in (await response.json())["message"]


async def test_open_watch_continues_after_the_history_expired(sandbox, http):
    client = sandbox.local("tester")
    await client.create("jobs", "default", job("a"))
    async with http.get(JOBS, params={"watch": "1"}) as response:
        await first_lines(response, 1)
        sandbox.expire_history()
        await client.create("jobs", "default", job("b"))
        (event,) = await first_lines(response, 1)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "b")


async def test_kubeconfig_has_token_of_configured_user_and_rejects_unknown_user():
    users = {**DEFAULT_USERS, "carol-token": User("carol", groups=("system:masters",))}
    async with Sandbox(controllers=False, users=users) as sandbox:
        config = sandbox.kubeconfig("carol")
        assert config["users"] == [{"name": "carol", "user": {"token": "carol-token"}}]
        with pytest.raises(SandboxError, match="no user 'dave'"):
            sandbox.kubeconfig("dave")


async def test_port_in_use_is_reported_as_sandbox_error(sandbox):
    port = int(sandbox.url.rpartition(":")[2])
    with pytest.raises(SandboxError, match=f"cannot listen on 127.0.0.1:{port}"):
        async with Sandbox(controllers=False, port=port):
            pass


async def test_kubeconfig_is_readable_by_its_owner_only(sandbox, tmp_path):
    path = tmp_path / "kubeconfig.yaml"
    sandbox.write_kubeconfig(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"] == sandbox.url


# ---------------------------------------------------------------------- in the process


async def test_local_watch_starts_with_existing_objects_and_has_previous_versions(sandbox):
    client = sandbox.local("tester")
    await client.create("jobs", "default", job("a"))
    watcher = client.watch("jobs")
    batches = aiter(watcher)
    assert [(plural, kind, obj["metadata"]["name"]) for plural, kind, obj, _ in await anext(batches)] == [
        ("jobs", "ADDED", "a")
    ]

    await client.patch("jobs", "default", "a", {"spec": {"parallelism": 3}})
    await client.delete("jobs", "default", "a", propagation="Background")
    changes = await anext(batches)
    watcher.close()

    assert [kind for _, kind, _, _ in changes] == ["MODIFIED", "DELETED"]
    (_, _, new, old), _ = changes
    assert (old["spec"]["parallelism"], new["spec"]["parallelism"]) == (1, 3)
    assert [batch async for batch in batches] == []


async def test_local_watch_of_several_resources_preserves_the_order_of_changes(sandbox):
    client = sandbox.local("tester")
    watcher = client.watch("jobs", "secrets")
    batches = aiter(watcher)
    await client.create("jobs", "default", job("a"))
    await client.create("secrets", "default", {"metadata": {"name": "b"}})
    await client.create("jobs", "default", job("c"))
    names = [obj["metadata"]["name"] for _, _, obj, _ in await anext(batches)]
    watcher.close()
    assert names == ["a", "b", "c"]


async def test_local_update_with_stale_version_is_a_conflict(sandbox):
    client = sandbox.local("tester")
    old = await client.create("jobs", "default", job("a"))
    await client.patch("jobs", "default", "a", {"metadata": {"labels": {"x": "1"}}})
    with pytest.raises(ApiError) as refused:
        await client.update("jobs", "default", old)
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")


async def test_local_writes_are_validated(sandbox):
    client = sandbox.local("tester")
    with pytest.raises(ApiError, match=r"spec.template.spec.containers: Required value"):
        await client.create("jobs", "default", {"metadata": {"name": "a"}, "spec": {}})
    with pytest.raises(ApiError, match=r'namespaces "nowhere" not found'):
        await client.create("jobs", "nowhere", job("a"))


async def test_returned_object_is_not_changed_by_later_writes(sandbox):
    client = sandbox.local("tester")
    await client.create("jobs", "default", job("a"))
    before = client.get("jobs", "default", "a")
    copy = json.loads(json.dumps(before))
    await client.patch("jobs", "default", "a", {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}})
    await client.patch("jobs", "default", "a", {"status": {"active": 0, "ready": 0}}, subresource="status")
    await client.delete("jobs", "default", "a", propagation="Foreground")
    assert before == copy


async def test_pod_binding_sets_node_name_and_cannot_be_repeated(sandbox):
    client = sandbox.local("scheduler")
    containers = [{"name": "main", "image": "i"}]
    await client.create("pods", "default", {"metadata": {"name": "p"}, "spec": {"containers": containers}})
    await client.bind("default", "p", "n1")
    assert client.get("pods", "default", "p")["spec"]["nodeName"] == "n1"
    with pytest.raises(ApiError, match='already assigned to node "n1"'):
        await client.bind("default", "p", "n2")


RESIZE = "/api/v1/namespaces/default/pods/p/resize"


@pytest.fixture
async def resize(sandbox, http):
    """Function that creates a pod with two containers, patches `resize`, and returns the response and the pod."""
    created = [
        {"name": name, "image": "pause", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
        for name in ("main", "side")
    ]

    async def resized(containers, *, before=created):
        client = sandbox.local("tester")
        await client.create("pods", "default", {"metadata": {"name": "p"}, "spec": {"containers": before}})
        body = {"metadata": {"labels": {"x": "1"}}, "spec": {"nodeSelector": {"a": "b"}, "containers": containers}}
        headers = {"Content-Type": "application/merge-patch+json"}
        async with http.patch(RESIZE, json=body, headers=headers) as response:
            answer = response.status, (await response.json()).get("message", "")
        return *answer, client.get("pods", "default", "p")

    return resized


def amounts(cpu, **others):
    return {"resources": {"requests": {"cpu": cpu, **others}}}


async def test_resize_changes_resources_and_ignores_other_fields(resize):
    new = amounts("2", memory="1Gi")
    status, _, pod = await resize([{"name": "main", **new}, {"name": "side", "image": "other", **new}])
    containers = pod["spec"]["containers"]
    assert status == 200
    assert [(each["image"], each["resources"]) for each in containers] == [("pause", new["resources"])] * 2
    assert "nodeSelector" not in pod["spec"]
    assert "labels" not in pod["metadata"]
    assert pod["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("containers", "fault"),
    [
        ([{"name": "main", **amounts("2", memory="1Gi")}], "containers may not be added or removed on resize"),
        ([{"name": "side"}, {"name": "main"}], "spec.containers[0].name: Forbidden: containers may not be renamed"),
        ([{"name": "main", **amounts("2")}, {"name": "side"}], "resource requests cannot be removed"),
        (
            [{"name": name, **amounts("1", memory="1Gi", **{"example.com/gpu": "1"})} for name in ("main", "side")],
            "only cpu and memory resources are mutable",
        ),
    ],
)
async def test_resize_of_other_than_cpu_and_memory_of_the_same_containers_is_rejected(resize, containers, fault):
    status, message, pod = await resize(containers)
    assert status == 422
    assert fault in message
    assert pod["metadata"]["generation"] == 1


async def test_resize_that_changes_the_qos_class_is_rejected(resize):
    status, message, pod = await resize([{"name": "c", **amounts("2")}], before=[{"name": "c", "image": "pause"}])
    assert (status, pod["spec"]["containers"][0]["image"]) == (422, "pause")
    assert "Pod QOS Class may not change as a result of resizing" in message


async def test_ephemeralcontainers_writes_no_other_field(sandbox):
    client = sandbox.local("tester")
    containers = [{"name": "main", "image": "pause"}]
    await client.create("pods", "default", {"metadata": {"name": "p"}, "spec": {"containers": containers}})
    added = {"name": "debug", "image": "busybox"}
    patch = {"spec": {"containers": [{"name": "other"}], "ephemeralContainers": [added]}}
    await client.patch("pods", "default", "p", patch, subresource="ephemeralcontainers")
    spec = client.get("pods", "default", "p")["spec"]
    assert [each["image"] for each in (*spec["containers"], *spec["ephemeralContainers"])] == ["pause", "busybox"]


async def test_image_cannot_be_removed_from_a_pod(sandbox):
    client = sandbox.local("tester")
    containers = [{"name": "main", "image": "pause"}]
    await client.create("pods", "default", {"metadata": {"name": "p"}, "spec": {"containers": containers}})
    with pytest.raises(ApiError, match=r"spec.containers\[0\].image: Required value"):
        await client.patch("pods", "default", "p", {"spec": {"containers": [{"name": "main"}]}})


async def test_unreachable_webhook_causes_rejection_of_local_writes(sandbox):
    client = sandbox.local("tester")
    hook = {
        "name": "closed.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"operations": ["*"], "apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    plural = "mutatingwebhookconfigurations"
    await client.create(plural, "", {"metadata": {"name": "m"}, "webhooks": [hook]})
    with pytest.raises(ApiError, match=r'failed calling webhook "closed\.example\.com"'):
        await client.create("jobs", "default", job("a"))
    await client.delete(plural, "", "m")
    assert await client.create("jobs", "default", job("a"))


# ---------------------------------------------------------------------- protobuf


def field(number, content):
    if isinstance(content, int):
        return bytes([number << 3, content])
    return bytes([number << 3 | 2, len(content)]) + content


async def test_protobuf_body_is_decoded_and_unknown_fields_are_rejected(http):
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    kind = field(1, field(1, b"v1") + field(2, b"ConfigMap"))
    labels = field(11, field(1, b"a") + field(2, b"b"))
    content = field(1, field(1, b"x") + labels) + field(2, field(1, b"key") + field(2, b"value")) + field(4, 1)
    url = "/api/v1/namespaces/default/configmaps"
    async with http.post(url, data=b"k8s\0" + kind + field(2, content), headers=headers) as response:
        created = await response.json()
    assert (created["metadata"]["labels"], created["data"], created["immutable"]) == (
        {"a": "b"},
        {"key": "value"},
        True,
    )

    async with http.post(url, data=b"k8s\0" + kind + field(2, field(9, b"")), headers=headers) as response:
        assert response.status == 415
        assert "ConfigMap, field 9" in (await response.json())["message"]


# ---------------------------------------------------------------------- kubectl


def write(path, manifest):
    path.write_text(yaml.safe_dump(manifest))


@pytest.mark.costly
async def test_kubectl_creates_applies_reads_and_deletes_jobs_and_creates_roles(sandbox, kubectl, tmp_path):
    manifest = tmp_path / "job.yaml"
    assert "created" in await kubectl(sandbox, "create", "job", "made", "--image=busybox", "--", "sleep", "1")
    applied = {"apiVersion": "batch/v1", "kind": "Job", **job("applied")}
    write(manifest, applied)
    assert "created" in await kubectl(sandbox, "apply", "-f", str(manifest))
    applied["metadata"]["labels"] = {"team": "a"}
    write(manifest, applied)
    assert "configured" in await kubectl(sandbox, "apply", "-f", str(manifest))

    listed = await kubectl(sandbox, "get", "jobs")
    assert listed.split("\n")[0].split() == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert "team=a" in await kubectl(sandbox, "describe", "job", "applied")
    await kubectl(sandbox, "create", "clusterrole", "reader", "--verb=get,list", "--resource=jobs.batch")
    await kubectl(sandbox, "create", "role", "reader", "--verb=get", "--resource=pods")
    await kubectl(
        sandbox, "create", "rolebinding", "readers", "--role=reader", "--user=alice", "--serviceaccount=default:bot"
    )
    await kubectl(sandbox, "create", "clusterrolebinding", "readers", "--clusterrole=reader", "--group=team")
    assert sandbox.local("tester").get("rolebindings", "default", "readers")["subjects"] == [
        {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"},
        {"kind": "ServiceAccount", "name": "bot", "namespace": "default"},
    ]
    assert sandbox.local("tester").get("clusterroles", "", "reader")["rules"] == [
        {"verbs": ["get", "list"], "apiGroups": ["batch"], "resources": ["jobs"]}
    ]
    await kubectl(sandbox, "delete", "job", "made", "applied")
    assert sandbox.local("tester").list("jobs") == []


async def test_local_watch_of_empty_resource_starts_with_an_empty_batch(sandbox):
    with closing(sandbox.local("admin").watch("secrets")) as watcher:
        assert await anext(aiter(watcher)) == []
        await sandbox.local("admin").create("secrets", "default", {"metadata": {"name": "a"}})
        assert [obj["metadata"]["name"] for _, _, obj, _ in await anext(aiter(watcher))] == ["a"]
