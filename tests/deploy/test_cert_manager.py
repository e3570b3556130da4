"""Certificates from cert-manager: the chart's requests for them, and their use by Sluice."""

from __future__ import annotations

import asyncio
import base64
import ssl
from pathlib import Path

import pytest
from chart import NAMESPACE, VALUE_SETS, Object, one, rendered

from admission.api.application import listening
from admission.api.resources.explaining_engine import NoController
from admission.api.resources.leader_view import NoLeader
from admission.api.resources.start_estimates import no_estimates
from admission.cli.configuration.settings import load_settings
from admission.cli.serve.aggregation import api_address, api_app, tls_endpoint
from admission.cli.serve.certificates import OwnCertificates
from admission.cluster.client import Client
from admission.kinds import all_kinds
from admission.sandbox.sandbox import Sandbox
from admission.store.store import Store
from tests.api.pki import Authority, Pair
from tests.ports import free_port
from webhooks.gate_reconciler import GateReconciler
from webhooks.registration import Registration, ServiceReference
from webhooks.scope import Scope

OURS = {"certificates": {"issuer": "cert-manager"}}
HOSTS = [f"sluice-webhook.{NAMESPACE}.svc", f"sluice-api.{NAMESPACE}.svc", "localhost"]


@pytest.fixture
def database_kind() -> str:
    return "sqlite"


@pytest.mark.parametrize("values", [OURS, VALUE_SETS["cert-manager"]], ids=["an Issuer of the chart", "another one"])
def test_certificate_for_both_services_is_requested_and_mounted_by_both_deployments(values: Object):
    documents = rendered(values)
    spec = one(documents, "Certificate")["spec"]
    assert spec["dnsNames"] == HOSTS
    for name in ("sluice", "sluice-webhook"):
        volumes = one(documents, "Deployment", name)["spec"]["template"]["spec"]["volumes"]
        (mounted,) = (each["secret"] for each in volumes if each["name"] == "certificates")
        assert mounted["secretName"] == spec["secretName"]
    roles = [each for each in documents if each["kind"] in ("Role", "ClusterRole")]
    assert not [rule for role in roles for rule in role["rules"] if "secrets" in rule.get("resources", ())]


def test_chart_creates_a_self_signed_ca_that_outlives_the_certificates_it_issues():
    documents = rendered(OURS)
    authority, leaf = one(documents, "Certificate", "sluice-authority")["spec"], one(documents, "Certificate")["spec"]
    assert authority["isCA"] is True
    assert authority["privateKey"]["rotationPolicy"] == "Never"
    assert one(documents, "Issuer", authority["issuerRef"]["name"])["spec"] == {"selfSigned": {}}
    assert one(documents, "Issuer", leaf["issuerRef"]["name"])["spec"]["ca"]["secretName"] == authority["secretName"]
    # cert-manager renews a certificate after two thirds of its lifetime, unless `renewBefore` says otherwise.
    assert not {"renewBefore", "renewBeforePercentage"} & authority.keys()
    assert hours(authority) / 3 >= hours(leaf)


def hours(spec: Object) -> float:
    """Return the lifetime of a Certificate; cert-manager's default is 90 days."""
    return float(spec.get("duration", "2160h").removesuffix("h"))


def test_existing_issuer_is_used_and_none_is_created():
    documents = rendered(VALUE_SETS["cert-manager"])
    assert one(documents, "Certificate")["spec"]["issuerRef"] == {
        "group": "cert-manager.io",
        "kind": "ClusterIssuer",
        "name": "cluster-ca",
    }
    assert [each["metadata"]["name"] for each in documents if each["kind"] in ("Issuer", "Certificate")] == ["sluice"]


def write(folder: Path, authority: Authority, pair: Pair) -> None:
    """Write the files of a mounted Secret with cert-manager's names, all replaced at once as by the kubelet."""
    content = folder / f"..{pair.certificate.stem}"
    content.mkdir(parents=True)
    for name, file in (("tls.crt", pair.certificate), ("tls.key", pair.key), ("ca.crt", authority.file)):
        (content / name).write_bytes(file.read_bytes())
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    (folder / "..new").symlink_to(content.name)
    (folder / "..new").rename(folder / "..data")


async def pause_once(_: float) -> None:
    """Replacement for the pause of a loop; the second pause of a task cancels the task."""
    if (task := asyncio.current_task()) is not None and task.get_name() == "looked":
        raise asyncio.CancelledError
    assert task is not None
    task.set_name("looked")


async def test_certificates_written_by_cert_manager_are_served_registered_and_reloaded(store: Store, tmp_path: Path):
    port, mounted = free_port(), tmp_path / "certificates"
    text = one(rendered(OURS), "ConfigMap")["data"]["config.yaml"]
    text = text.replace("/etc/sluice/certificates", str(mounted)).replace(":8443", f"127.0.0.1:{port}")
    (tmp_path / "config.yaml").write_text(text)
    settings = load_settings({}, config=tmp_path / "config.yaml")
    authorities = [Authority(tmp_path, "first"), Authority(tmp_path, "second", key_identifiers=False)]
    pairs = [authority.server(*HOSTS) for authority in (authorities[0], *authorities)]
    write(mounted, authorities[0], pairs[0])
    async with Sandbox(controllers=False) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        async with Client.from_kubeconfig(str(tmp_path / "kubeconfig")) as client:
            certificates = OwnCertificates(settings, client)
            endpoint = await tls_endpoint(settings, client, certificates)
            assert endpoint is not None
            kinds = tuple(all_kinds(excluded_namespaces=("kube-system",)))
            scope = Scope(("sluice",), ("kube-system",), None)
            service = ServiceReference(*settings.webhook_service.split("/"))
            gate = Registration(kinds, service, scope)
            reconciler = GateReconciler(
                client, "webhooks", kinds, scope, lambda: gate.configuration(certificates.webhook_ca)
            )
            app = api_app(settings, store, client, NoController(), NoLeader(), endpoint, {}, no_estimates)
            async with listening(app, "127.0.0.1", api_address(settings)[1], ssl_context=endpoint.context):
                await endpoint.register()
                await reconciler.ensure()
                admin = sandbox.local("admin")
                for authority, pair in (
                    (authorities[0], pairs[0]),
                    (authorities[0], pairs[1]),
                    (authorities[1], pairs[2]),
                ):
                    if not (mounted / f"..{pair.certificate.stem}").exists():
                        write(mounted, authority, pair)
                    for keeping in (
                        endpoint.run(sleep=pause_once),
                        reconciler.run(refresh=certificates.refresh, sleep=pause_once),
                    ):
                        await asyncio.gather(asyncio.create_task(keeping), return_exceptions=True)
                    shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
                    assert shown == pair.certificate.read_text()
                    (api,) = admin.list("apiservices")
                    (webhooks,) = admin.list("mutatingwebhookconfigurations")
                    for bundle in (api["spec"]["caBundle"], webhooks["webhooks"][0]["clientConfig"]["caBundle"]):
                        assert base64.b64decode(bundle).decode() == authority.pem
                assert admin.list("secrets") == []
