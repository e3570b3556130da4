"""The Helm chart: lint, rendering, values, installation, upgrade, rollback, uninstallation; and the kustomize bases."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path

import helm_python as helm
import pytest
import yaml
from chart import CHART, DEPLOY, NAMESPACE, VALUE_SETS, Object, foreign_kinds, generate, one, rendered
from kubernetes_validate import validate

from admission.cli.configuration.documentation import example
from admission.cli.configuration.settings import load_settings
from admission.cli.serve.aggregation import aggregation
from admission.cluster.client import Client
from admission.sandbox.main import simulated_node
from admission.sandbox.sandbox import Sandbox
from tests.deploy.commands import output_of

POSTGRESQL = {"replicas": 3, "database": {"type": "postgresql", "postgresql": {"secretName": "sluice-database"}}}
WITHOUT_HOOK = {"uninstall": {"enabled": False}}
"""Values for a sandbox without controllers, in which the Job of the hook would not run."""


@asynccontextmanager
async def cluster(folder: Path, *, controllers: bool = False) -> AsyncIterator[Sandbox]:
    """Run a sandbox with the namespace and the foreign kinds; write its kubeconfig to `folder`."""
    async with Sandbox(controllers=controllers, speed=60) as sandbox:
        admin = sandbox.local("admin")
        await admin.create("namespaces", "", {"metadata": {"name": NAMESPACE}})
        for definition in foreign_kinds():
            await admin.create("customresourcedefinitions", "", definition)
        sandbox.write_kubeconfig(folder / "kubeconfig")
        yield sandbox


def everything(sandbox: Sandbox) -> dict[tuple[str, str, str], Object]:
    """Return all stored objects except Helm's release records, by resource, namespace and name."""
    found = {}
    for (group, plural), collection in sandbox.registry.store.collections.items():
        for stored in collection.versions():
            metadata = stored.obj["metadata"]
            if stored.obj.get("type") != "helm.sh/release.v1":
                found[f"{plural}.{group}", metadata.get("namespace", ""), metadata["name"]] = stored.obj
    return found


def test_the_chart_has_the_version_of_sluice():
    metadata = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (metadata["version"], metadata["appVersion"]) == (version("sluice"), version("sluice"))


def test_helm_lint_reports_only_the_missing_icon():
    found = helm.lint(CHART)
    assert found["errors"] == []
    assert {message["error"] for message in found["messages"]} <= {"icon is recommended"}


@pytest.mark.costly
@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
async def test_rendered_manifests_pass_server_side_apply(values: Object, tmp_path: Path):
    """With strict validation: no field is unknown or of a wrong type."""
    async with cluster(tmp_path):
        (tmp_path / "all.yaml").write_text(yaml.dump_all(rendered(values), Dumper=yaml.CSafeDumper))
        flags = ("--server-side", "--validate=strict", f"--filename={tmp_path / 'all.yaml'}")
        applied = await asyncio.create_subprocess_exec(
            "kubectl", f"--kubeconfig={tmp_path / 'kubeconfig'}", "apply", *flags,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await applied.communicate()
        assert applied.returncode == 0, output.decode()


@pytest.mark.parametrize("kubernetes", ["1.28", "1.30", "1.37"])
@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_rendered_manifests_match_the_schemas_of_kubernetes(values: Object, kubernetes: str):
    """No field is unknown, missing or of a wrong type, in the oldest and the newest version; includes the hooks."""
    foreign = {definition["spec"]["names"]["kind"] for definition in foreign_kinds()}
    hooks = _hooks(json.dumps(values))
    assert bool(hooks) is values.get("uninstall", {}).get("enabled", True)
    for document in [*rendered(values), *hooks]:
        if document["kind"] not in foreign:
            _validate(json.dumps(document), kubernetes)


@cache
def _hooks(values: str) -> list[Object]:
    with helm.Chart.load(CHART) as chart:
        texts = chart.render(json.loads(values), name="sluice", namespace=NAMESPACE)
    text = texts.get("sluice/templates/uninstall.yaml", "")
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]


@cache  # most objects are the same for all value sets
def _validate(document: str, kubernetes: str) -> None:
    validate(json.loads(document), kubernetes, strict=True)


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_pods_are_restricted_and_the_sources_of_their_volumes_exist(values: Object):
    documents = rendered(values)
    names = {(each["kind"], each["metadata"]["name"]) for each in documents}
    given = {
        "sluice-database",
        "sluice-database-tls",
        "sluice-clusters",
        "sluice-notifications",
        "sluice-sign-in",
        "my-volume",
        "sluice-webhook-certificates",
        "sluice-certificates",
    }
    for name in ("sluice", "sluice-webhook"):
        pod = one(documents, "Deployment", name)["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
        for volume in pod["volumes"]:
            (source,) = volume.keys() - {"name"}
            match source:
                case "configMap":
                    assert ("ConfigMap", volume[source]["name"]) in names
                case "secret":
                    assert volume[source]["secretName"] in given
                case "persistentVolumeClaim":
                    claim = volume[source]["claimName"]
                    assert claim in given
                    assert claim != "sluice-database" or ("PersistentVolumeClaim", claim) in names
                case _:
                    assert source == "emptyDir"


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_services_budgets_and_network_policies_select_their_own_deployment(values: Object):
    documents = rendered(values)
    pods = {each["metadata"]["name"]: each["spec"]["template"] for each in documents if each["kind"] == "Deployment"}
    selectors = {"Service": "selector", "PodDisruptionBudget": "selector", "NetworkPolicy": "podSelector"}
    for each in documents:
        if each["kind"] in selectors:
            spec, own = each["spec"], each["metadata"]["name"].removesuffix("-api")
            selector = spec[selectors[each["kind"]]]
            wanted = selector.get("matchLabels", selector).items()
            assert [name for name, pod in pods.items() if wanted <= pod["metadata"]["labels"].items()] == [own]
            (container,) = pods[own]["spec"]["containers"]
            targets = {port["targetPort"] for port in spec.get("ports", ())}
            assert targets <= {port["name"] for port in container["ports"]}


def test_service_monitors_select_the_services_of_serve_and_the_gate():
    """Both are scraped because only the gate has the metrics of its reviews and of its certificate's expiry."""
    documents = rendered(VALUE_SETS["monitoring"])
    found = {}
    for monitor in (each for each in documents if each["kind"] == "ServiceMonitor"):
        (endpoint,) = monitor["spec"]["endpoints"]
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        services = [
            one for one in documents if one["kind"] == "Service" and wanted <= one["metadata"]["labels"].items()
        ]
        ports = [
            port["targetPort"] for one in services for port in one["spec"]["ports"] if port["name"] == endpoint["port"]
        ]
        found[monitor["metadata"]["name"]] = (ports, endpoint["tlsConfig"])
        assert (monitor["metadata"]["labels"]["release"], endpoint["interval"]) == ("prometheus", "15s")
    assert found["sluice"][0] == ["api"]
    assert found["sluice-webhook"] == (["webhook"], {"insecureSkipVerify": True}), "also once the certificate has ended"
    assert len(found) == 2


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_rendered_configuration_is_loaded_by_sluice(values: Object, tmp_path: Path):
    (tmp_path / "url").write_text("postgresql://sluice@db/sluice")
    text = one(rendered(values), "ConfigMap")["data"]["config.yaml"]
    (tmp_path / "config.yaml").write_text(
        text.replace("/etc/sluice/database/dsn", str(tmp_path / "url")).replace(
            "/etc/sluice/database/url", str(tmp_path / "url")
        )
    )
    settings = load_settings({}, config=tmp_path / "config.yaml")
    assert settings.webhook_process is False
    assert settings.webhook_service == f"{NAMESPACE}/sluice-webhook"
    assert settings.api_service == f"{NAMESPACE}/sluice-api"
    assert settings.database_url.startswith(values.get("database", {}).get("type", "sqlite"))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"replicas": 2}, "a SQLite database has room for one: set replicas to 1, or database.type to postgresql"),
        ({"database": {"type": "postgresql"}}, "name the Secret with its URL in database.postgresql.secretName"),
        ({"config": {"databaseUrl": "sqlite:///x"}}, "config.databaseUrl is for the chart to say"),
        ({"config": {"integrations": {"frameworks": ["jobset"]}}}, '"jobset" is no kind that Sluice knows'),
        ({"config": {"integrations": {"exclude": ["jobsets"]}}}, 'integrations.exclude: "jobsets" is no kind that'),
        ({"config": {"adminToken": "x"}}, "config.adminToken would be readable in a ConfigMap"),
        ({"replica": 2}, "additional properties 'replica' not allowed"),
        ({"replicas": "two"}, "/replicas.*got string, want integer"),
        ({"database": {"type": "mysql"}}, "/database/type.*must be one of 'sqlite', 'postgresql'"),
        ({"config": {"fairSharin": {}}}, "at '/config': additional properties 'fairSharin' not allowed"),
        ({"config": {"retention": {"finishd": "9d"}}}, "'/config/retention': additional properties 'finishd' not"),
        ({"opentelemetry": {"env": [{"name": "SLUICE_DATABASE_URL", "value": "x"}]}}, "'SLUICE_DATABASE_URL' does not"),
        ({"opentelemetry": {"env": [{"name": "OTEL_SDK_DISABLED", "value": True}]}}, "got boolean, want string"),
        ({"config": {"leaseDuration": "5s"}}, "at '/config/leaseDuration': got string, want number"),
    ],
)
def test_invalid_values_are_rejected_with_a_clear_message(values: Object, sentence: str):
    with helm.Chart.load(CHART) as chart, pytest.raises(helm.HelmError, match=sentence):
        chart.render(values, name="sluice", namespace=NAMESPACE)


@pytest.mark.costly
def test_schema_of_values_accepts_the_example_configuration():
    settings = re.sub("^# ", "", example(), flags=re.MULTILINE)
    config = {name: value for name, value in yaml.safe_load(settings).items() if value is not None}
    schema = json.loads(generate.schema())["definitions"]["configuration"]
    assert config.keys() <= schema["properties"].keys()
    for name in ("admissionFairSharing", "notifications", "oidc", "requestHeader", "resources", "waitForPodsReady"):
        with helm.Chart.load(CHART) as chart:
            chart.render({"config": {name: config[name]}}, name="sluice", namespace=NAMESPACE)


@pytest.mark.parametrize("namespace", ["default", "kube-system"])
def test_shared_namespace_is_rejected(namespace: str):
    sentence = f"the namespace is {namespace}, but Sluice needs one of its own"
    with helm.Chart.load(CHART) as chart, pytest.raises(helm.HelmError, match=sentence):
        chart.render({}, name="sluice", namespace=namespace)


async def run_helm(action: str, folder: Path, values: Object | None = None) -> list[str]:
    """Run an action of Helm; return the states of the release's revisions afterwards."""
    script = (sys.executable, str(Path(__file__).with_name("helm_release.py")))
    output = await output_of(*script, str(folder / "kubeconfig"), action, str(CHART), json.dumps(values or {}))
    states: list[str] = json.loads(output or "[]")
    return states


@pytest.mark.costly
async def test_a_release_is_installed_upgraded_rolled_back_and_uninstalled(tmp_path: Path):
    async with cluster(tmp_path) as sandbox:

        def serve() -> tuple[int, str]:
            spec = everything(sandbox)["deployments.apps", NAMESPACE, "sluice"]["spec"]
            return spec["replicas"], spec["strategy"]["type"]

        async with Client.from_kubeconfig(str(tmp_path / "kubeconfig")) as client:
            outside = aggregation(load_settings({"apiservice_url": "https://host.example:8443"}))
            assert outside is not None
            await outside.ensure(client, b"CA")  # as left by a Sluice that ran outside of the cluster
        before = everything(sandbox)
        assert await run_helm("install", tmp_path, WITHOUT_HOOK) == ["deployed"]
        assert serve() == (1, "Recreate")
        await run_helm("upgrade", tmp_path, WITHOUT_HOOK | POSTGRESQL)
        assert serve() == (3, "RollingUpdate")
        assert ("poddisruptionbudgets.policy", NAMESPACE, "sluice") in everything(sandbox)
        assert await run_helm("rollback", tmp_path) == ["superseded", "superseded", "deployed"]
        assert serve() == (1, "Recreate")
        assert ("poddisruptionbudgets.policy", NAMESPACE, "sluice") not in everything(sandbox)
        await run_helm("uninstall", tmp_path)
        left = everything(sandbox).keys() - before.keys()
        # The volume with the database is kept on purpose.
        assert left == {("persistentvolumeclaims.", NAMESPACE, "sluice-database")}


@pytest.mark.costly
async def test_helm_uninstall_with_its_hook_leaves_no_object_of_sluice(tmp_path: Path):
    """The sandbox only simulates the hook's Job, for which Helm waits; other tests run the command of the hook."""
    values = {"podAnnotations": {"sandbox.sluice.dev/run-seconds": "1"}, "database": {"sqlite": {"keep": False}}}
    async with cluster(tmp_path, controllers=True) as sandbox:
        await sandbox.local("admin").create("nodes", "", simulated_node("node"))
        before = everything(sandbox).keys()
        await run_helm("install", tmp_path, values)
        await run_helm("uninstall", tmp_path)
        left = everything(sandbox).keys() - before
        assert [key for key in left if "sluice" in key[2] and not key[0].startswith("events")] == []


def test_cluster_role_has_rules_for_the_enabled_kinds_only():
    documents = rendered(VALUE_SETS["postgresql"])
    rules = one(documents, "ClusterRole", "sluice-kinds")["rules"]
    assert [(rule["apiGroups"], rule["resources"]) for rule in rules if rule["verbs"] != ["list"]] == [
        (["jobset.x-k8s.io"], ["jobsets"]),
        (["ray.io"], ["rayclusters"]),
        (["example.com"], ["trainingruns"]),
    ]
    gate = one(documents, "Deployment", "sluice-webhook")["spec"]["template"]["spec"]["containers"][0]
    assert "--config=/etc/sluice/configuration/config.yaml" in gate["args"]


def test_cluster_role_has_rules_for_all_kinds_except_excluded_ones():
    def resources(integrations: Object) -> set[str]:
        rules = one(rendered({"config": {"integrations": integrations}}), "ClusterRole", "sluice-kinds")["rules"]
        return {resource for rule in rules if rule["verbs"] != ["list"] for resource in rule["resources"]}

    everything = resources({})
    assert {"jobsets", "trainjobs", "pods", "statefulsets", "workflows"} <= everything
    assert resources({"exclude": ["jobset.x-k8s.io/jobset"]}) == everything - {"jobsets", "trainjobs"}
    # Pods are also created for AppWrappers of MCAD.
    left = resources({"exclude": ["pod", "mcad.ibm.com/appwrapper"]})
    assert not left & {"pods", "statefulsets", "leaderworkersets"}
    assert resources({"frameworks": ["batch/job"]}) == set()


@pytest.mark.parametrize("name", ["sluice", "sluice-webhook"])
def test_both_deployments_send_traces_only_if_opentelemetry_is_enabled(name: str):
    documents = rendered(VALUE_SETS["postgresql"] | {"adminToken": {"secretName": "sluice-admin"}})
    container = one(documents, "Deployment", name)["spec"]["template"]["spec"]["containers"][0]
    variables = {each["name"]: each for each in container["env"]}
    assert variables["OTEL_EXPORTER_OTLP_ENDPOINT"]["value"] == "https://collector.example:4319"
    assert variables["OTEL_EXPORTER_OTLP_HEADERS"]["valueFrom"]["secretKeyRef"]["name"] == "sluice-collector"
    assert ("SLUICE_ADMIN_TOKEN" in variables) is (name == "sluice")
    assert ("--opentelemetry" in container["args"]) is (name == "sluice-webhook")
    assert {53, 4319} <= _egress_ports(documents, name)
    off = rendered({})
    container = one(off, "Deployment", name)["spec"]["template"]["spec"]["containers"][0]
    assert "env" not in container
    assert "--opentelemetry" not in container["args"]
    assert 4318 not in _egress_ports(off, name)


def _egress_ports(documents: list[Object], name: str) -> set[int]:
    rules = one(documents, "NetworkPolicy", name)["spec"].get("egress", [])
    return {port["port"] for rule in rules for port in rule["ports"]}


def test_generated_files_are_up_to_date():
    """`make manifests` writes them."""
    assert generate.KINDS.read_text() == generate.kinds()
    assert generate.SCHEMA.read_text() == generate.schema()
    for path, text in generate.kustomizations().items():
        assert (DEPLOY / "kustomize" / path).read_text() == text


@pytest.mark.parametrize("name", generate.BASES)
def test_kustomize_base_equals_the_rendered_chart(name: str):
    kubectl = shutil.which("kubectl")
    assert kubectl is not None
    built = subprocess.run([kubectl, "kustomize", DEPLOY / "kustomize" / name], check=True, capture_output=True)
    documents = list(yaml.load_all(built.stdout, yaml.CSafeLoader))
    namespaces = [each for each in documents if each["kind"] == "Namespace"]
    assert [each["metadata"]["name"] for each in namespaces] == [NAMESPACE]
    others = [each for each in documents if each not in namespaces]

    def key(each: Object) -> str:
        return f"{each['kind']}/{each['metadata'].get('namespace', '')}/{each['metadata']['name']}"

    assert sorted(others, key=key) == sorted(rendered(generate.BASES[name]), key=key)
