"""Authentication and authorization in the sandbox: tokens, impersonation, reviews, RBAC beyond the recorded cases."""

import ssl
from functools import partial

import aiohttp
import pytest

from admission.sandbox import SandboxError, User
from tests.user_permissions import allow, bind

RBAC = "rbac.authorization.k8s.io"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ME = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.fixture
async def http(sandbox):
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=sandbox.ca_pem))
    async with aiohttp.ClientSession(sandbox.url, connector=connector) as session:
        yield session


@pytest.fixture
def ask(http):
    async def send(method, path, body=None, *, token="admin-token", headers=None):
        given = {"Authorization": f"Bearer {token}", **(headers or {})}
        async with http.request(method, path, json=body, headers=given) as response:
            return response.status, await response.json()

    return send


@pytest.fixture
def grant(sandbox):
    """Return a function that grants rules to a user, in a namespace or cluster-wide."""
    return partial(allow, sandbox.local("tester"))


def rule(group, resource, *verbs, **more):
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs), **more}


def review(user, verb, resource, *, group="batch", name="", namespace="", groups=()):
    attributes = {"verb": verb, "group": group, "resource": resource, "name": name, "namespace": namespace}
    return {"spec": {"user": user, "groups": list(groups), "resourceAttributes": attributes}}


# ---------------------------------------------------------------------- users


async def test_created_user_is_authenticated_until_removed(ask):
    status, made = await ask("POST", "/sandbox/users", {"name": "carol", "uid": "9", "groups": ["team-c"]})
    assert status == 201
    status, answer = await ask("POST", ME, {}, token=made["token"])
    assert answer["status"]["userInfo"] == {
        "username": "carol", "uid": "9", "groups": ["team-c", "system:authenticated"],
    }  # fmt: skip
    assert (await ask("DELETE", "/sandbox/users/carol"))[0] == 200
    assert (await ask("POST", ME, {}, token=made["token"]))[0] == 401
    status, answer = await ask("DELETE", "/sandbox/users/carol")
    assert (status, answer["message"]) == (404, 'users "carol" not found')


async def test_token_is_rejected_after_its_expiry(sandbox, ask):
    token = sandbox.add_user(User("dave"), expires=1e-6)
    status, answer = await ask("POST", TOKENS, {"spec": {"token": token}})
    assert (status, answer["status"].get("authenticated", False)) == (201, False)
    assert (await ask("GET", JOBS, token=token))[0] == 401


@pytest.mark.parametrize(
    ("document", "text"),
    [({}, "name: Field required"), ({"name": "a", "expires": 0}, "expires: "), ({"name": "a", "x": 1}, "x: Extra")],
)
async def test_invalid_user_is_rejected_with_the_field_name(ask, document, text):
    status, answer = await ask("POST", "/sandbox/users", document)
    assert (status, answer["message"][: len(text)]) == (400, text)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/sandbox/users"), ("DELETE", "/sandbox/users/bob"), ("POST", "/sandbox/faults"),
        ("GET", "/sandbox/faults"), ("DELETE", "/sandbox/faults"), ("POST", "/sandbox/compact"),
        ("GET", "/sandbox/requests"),
    ],
)  # fmt: skip
async def test_control_endpoints_are_forbidden_to_non_administrators(sandbox, ask, method, path):
    sandbox.faults.install({"rules": [{"do": "error"}]})
    before = sandbox.faults.describe()
    status, answer = await ask(method, path, {"name": "eve", "groups": ["system:masters"]}, token="alice-token")
    assert (status, answer["message"]) == (403, f'forbidden: User "alice" cannot {method.lower()} path "{path}"')
    assert sandbox.faults.describe() == before
    sandbox.faults.remove()
    assert (await ask("POST", ME, {}, token="bob-token"))[0] == 201


async def test_kubeconfig_is_available_for_user_added_after_start(sandbox):
    with pytest.raises(SandboxError, match="no user 'erin'"):
        sandbox.kubeconfig("erin")
    token = sandbox.add_user(User("erin"))
    assert sandbox.kubeconfig("erin")["users"] == [{"name": "erin", "user": {"token": token}}]


# ---------------------------------------------------------------------- impersonation


@pytest.mark.parametrize(
    ("headers", "allowing"),
    [
        ({"Impersonate-User": "eve"}, rule("", "users", "impersonate", resourceNames=["eve"])),
        ({"Impersonate-User": "system:serviceaccount:ns:robot"}, rule("", "serviceaccounts", "impersonate")),
        ({"Impersonate-User": "eve", "Impersonate-Group": "dev"}, rule("", "groups", "impersonate")),
        (
            {"Impersonate-User": "eve", "Impersonate-Uid": "7"},
            rule("authentication.k8s.io", "uids", "impersonate", resourceNames=["7"]),
        ),
        (
            {"Impersonate-User": "eve", "Impersonate-Extra-Scopes": "view"},
            rule("authentication.k8s.io", "userextras/scopes", "impersonate", resourceNames=["view"]),
        ),
    ],
)
async def test_each_impersonated_attribute_needs_its_own_permission(ask, grant, headers, allowing):
    is_user = allowing["resources"] in (["users"], ["serviceaccounts"])
    if not is_user:
        await grant("alice", rule("", "users", "impersonate"))
    status, answer = await ask("POST", ME, {}, token="alice-token", headers=headers)
    assert status == 403
    assert 'User "alice" cannot impersonate-on:user-info:create' in answer["message"]

    await grant("alice", allowing)
    status, answer = await ask("POST", ME, {}, token="alice-token", headers=headers)
    assert (status, answer["status"]["userInfo"]["username"]) == (201, headers["Impersonate-User"])


# ---------------------------------------------------------------------- access


async def test_rule_with_resource_name_allows_no_other_name_and_no_unfiltered_list(ask, grant):
    await grant("alice", rule("batch", "jobs", "get", "list", "watch", resourceNames=["mine"]), namespace="default")
    for name, namespace, allowed in (("mine", "default", True), ("other", "default", False), ("mine", "b", False)):
        _, answer = await ask("POST", ACCESS, review("alice", "get", "jobs", name=name, namespace=namespace))
        assert answer["status"]["allowed"] is allowed
    assert (await ask("GET", JOBS, token="alice-token"))[0] == 403
    assert (await ask("GET", f"{JOBS}?fieldSelector=metadata.name%3Dmine", token="alice-token"))[0] == 200
    assert (await ask("GET", f"{JOBS}?fieldSelector=metadata.name%21%3Dmine", token="alice-token"))[0] == 403
    assert (await ask("GET", f"{JOBS}?fieldSelector=metadata.name%3Dother", token="alice-token"))[0] == 403


async def test_aggregated_roles_gain_and_lose_rules_of_labelled_roles(sandbox, ask):
    client = sandbox.local("tester")
    await bind(sandbox.local("tester"), "view", "alice")
    wanted = review("alice", "list", "clusterqueues", group="sluice.dev")
    assert (await ask("POST", ACCESS, wanted))[1]["status"]["allowed"] is False

    labels = {f"{RBAC}/aggregate-to-view": "true"}
    rules = [rule("sluice.dev", "clusterqueues", "get", "list")]
    await client.create("clusterroles", "", {"metadata": {"name": "queues", "labels": labels}, "rules": rules})
    assert (await ask("POST", ACCESS, wanted))[1]["status"]["allowed"] is True
    # view is aggregated to edit, and edit to admin
    assert rules[0] in client.get("clusterroles", "", "admin")["rules"]

    await client.delete("clusterroles", "", "queues")
    assert (await ask("POST", ACCESS, wanted))[1]["status"]["allowed"] is False


async def test_default_roles_for_extension_api_servers_grant_their_permissions(sandbox, ask):
    config = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    assert (await ask("GET", config, token="alice-token"))[0] == 403
    tester, role = sandbox.local("tester"), "extension-apiserver-authentication-reader"
    await bind(tester, role, "alice", namespace="kube-system", of="Role")
    assert (await ask("GET", config, token="alice-token"))[0] == 200

    assert (await ask("POST", TOKENS, {"spec": {"token": "bob-token"}}, token="alice-token"))[0] == 403
    await bind(tester, "system:auth-delegator", "alice")
    status, answer = await ask("POST", TOKENS, {"spec": {"token": "bob-token"}}, token="alice-token")
    assert (status, answer["status"]["user"]["username"]) == (201, "bob")
    status, answer = await ask("POST", ACCESS, review("bob", "get", "jobs"), token="alice-token")
    assert (status, answer["status"]["allowed"]) == (201, False)


@pytest.mark.costly
async def test_kubectl_auth_can_i_reports_rbac_permissions(sandbox, grant, kubectl):
    await grant("alice", rule("batch", "jobs", "create"), namespace="default")

    async def can_i(user, *arguments):
        return (await kubectl(sandbox, "auth", "can-i", *arguments, user=user, codes=(0, 1))).strip()

    assert await can_i("alice", "create", "jobs") == "yes"
    assert await can_i("alice", "delete", "jobs") == "no"
    assert await can_i("admin", "delete", "jobs", "--as", "alice") == "no"
    assert await can_i("admin", "*", "*") == "yes"
    assert "jobs.batch" in await can_i("alice", "--list")
