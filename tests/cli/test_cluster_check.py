"""The check of a Cluster when it is written: connection, identity, and rights that Sluice lacks there."""

from __future__ import annotations

import pytest
from serve_processes import sandbox_with_rights

from admission.cli.commands.kinds import roles_of_kinds
from admission.cli.configuration.settings import Settings
from admission.cli.serve.clusters import Clusters, kinds_of
from admission.model.manifests import parse_manifest
from admission.sandbox.apiserver.requests import User
from admission.sandbox.sandbox import Sandbox
from tests.user_permissions import allow


@pytest.fixture
async def sandbox():
    async with Sandbox(controllers=False) as sandbox:
        yield sandbox


@pytest.fixture
def checked(tmp_path):
    """The check, with a directory of credentials."""
    settings = Settings(cluster_credentials=tmp_path)
    clusters = Clusters(settings, lambda: kinds_of(settings))

    async def check(**spec):
        document = {"apiVersion": "sluice.dev/v1", "kind": "Cluster", "metadata": {"name": "b"}}
        return await clusters.check(parse_manifest({**document, "spec": {"kubeconfig": "b.yaml", **spec}}))

    return check


async def test_cluster_that_can_join_has_no_warning(sandbox, checked, tmp_path):
    sandbox.write_kubeconfig(tmp_path / "b.yaml", "sluice")
    assert await checked() == []


async def test_missing_rights_are_named_verb_by_verb(sandbox, checked, tmp_path):
    sandbox.add_user(User("poor", groups=("system:authenticated",)))
    sandbox.write_kubeconfig(tmp_path / "b.yaml", "poor")
    none = await checked()
    assert "Sluice may not get namespaces kube-system there" in none
    assert "Sluice may not get, update leases.coordination.k8s.io kube-system/sluice-database there" in none
    assert "deploy/rbac/sluice.yaml" in none[-1]
    verbs = ["get", "list", "create", "update"]
    await allow(sandbox.local("admin"), "poor", {"apiGroups": ["*"], "resources": ["*"], "verbs": verbs})
    some = await checked()
    assert "Sluice may not watch namespaces there" in some
    assert "Sluice may not watch, patch jobs.batch there" in some
    assert not any("list" in text for text in some)


async def test_published_rights_are_sufficient(checked, tmp_path):
    roles = roles_of_kinds(kinds_of(Settings()), "sluice-system", "sluice")
    async with sandbox_with_rights(tmp_path, *roles):
        (tmp_path / "kubeconfig").rename(tmp_path / "b.yaml")
        assert await checked() == []


async def test_file_that_is_missing_or_none_is_named_without_its_directory(checked, tmp_path):
    (text,) = await checked()
    assert text.startswith("spec.kubeconfig: ")
    assert "b.yaml" in text
    assert str(tmp_path) not in text
    (tmp_path / "b.yaml").write_text("password: secret-of-somebody\n")
    (text,) = await checked()
    assert "secret-of-somebody" not in text


async def test_other_uid_than_expected_is_said(sandbox, checked, tmp_path):
    sandbox.write_kubeconfig(tmp_path / "b.yaml", "sluice")
    (text,) = await checked(uid="1")
    uid = sandbox.local("admin").get("namespaces", "", "kube-system")["metadata"]["uid"]
    assert text == f"spec.uid: the namespace kube-system of this cluster has the uid {uid}"


async def test_process_without_a_directory_of_credentials_says_so():
    settings = Settings()
    document = {"apiVersion": "sluice.dev/v1", "kind": "Cluster", "metadata": {"name": "b"}}
    cluster = parse_manifest({**document, "spec": {"kubeconfig": "b.yaml"}})
    (text,) = await Clusters(settings, lambda: kinds_of(settings)).check(cluster)
    assert "--cluster-credentials" in text
