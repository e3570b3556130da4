"""The file tree of the image, built without a daemon, and `sluice serve` in it with uid 65532 and a read-only root."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
from chart import DEPLOY, NAMESPACE, Object, one, rendered
from containers import PINS, contained, may_unshare
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from ports import free_port

from admission.sandbox.apiserver.requests import User
from admission.sandbox.sandbox import Sandbox

ROOT = DEPLOY.parent
SIZE = 170 * 2**20
"""Maximum size of the tree in bytes, without Python."""


def test_pinned_requirements_of_the_image_equal_the_tested_versions():
    constraints = dict(re.findall(r"^(\S+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert PINS.items() <= constraints.items()
    assert {name: distribution(name).version for name in PINS} == PINS


@pytest.mark.long
def test_image_tree_is_small_compiled_and_without_sandbox_and_demo(tree: Path):
    files = [file for file in tree.rglob("*") if file.is_file()]
    assert size(tree) < SIZE
    assert not [name for name in ("admission/sandbox", "admission/cli/demo", "bin") if (tree / name).exists()]
    assert not [file for file in files if file.suffix in (".c", ".h", ".pyx")]
    sources = [file for file in files if file.suffix == ".py" and "lib2to3" not in file.parts]
    compiled = [file for file in sources if (file.parent / "__pycache__" / f"{file.stem}.cpython-311.pyc").exists()]
    assert compiled == sources


@pytest.mark.costly
def test_sbom_lists_all_pinned_distributions(tree: Path):
    bill = json.loads((tree / "sbom.cdx.json").read_text())
    assert {each["name"].lower().replace("_", "-"): each["version"] for each in bill["components"]} == PINS
    assert bill["metadata"]["component"]["name"] == "sluice"


@pytest.mark.long
def test_command_missing_in_the_image_fails_with_an_explanation(tree: Path):
    done = run_in(tree, "demo")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        'Error: "demo" is not in this installation; the image is without it, too',
    )
    assert run_in(tree, "version").stdout.startswith("sluice ")


class Collector(BaseHTTPRequestHandler):
    """Receives spans by OTLP over HTTP, for `received` of the class."""

    received: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.received.extend(f"{self.path} {span.name}" for scope in resource.scope_spans for span in scope.spans)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write no log."""


@pytest.mark.costly
def test_image_sends_traces_to_a_collector(tree: Path):
    """The chart's setting for traces must work without a custom image."""
    code = "from admission.serving.tracing import Tracing; t = Tracing(); t.span('a span', 1.0, 2.0, {}); t.close()"
    command = [sys._base_executable, "-c", code]  # type: ignore[attr-defined]
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        serving = Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        url = f"http://127.0.0.1:{server.server_port}"
        environment = {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": url}
        done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)
        server.shutdown()
        serving.join()
    assert (done.returncode, done.stderr) == (0, "")
    assert Collector.received == ["/v1/traces a span"]


def size(tree: Path) -> int:
    return sum(file.stat().st_size for file in tree.rglob("*") if file.is_file())


def run_in(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    command = [sys._base_executable, "-m", "admission.cli.main", *arguments]  # type: ignore[attr-defined]
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)


def _pod_volumes(folder: Path, sandbox: Sandbox, documents: list[Object], *, token: str, port: int) -> dict[str, Path]:
    """Write the configuration and ServiceAccount of the pod of `sluice serve`; return the folders by mount path."""
    account, configuration = folder / "account", folder / "configuration"
    account.mkdir(parents=True)
    (account / "token").write_text(token)
    (account / "namespace").write_text(NAMESPACE)
    (account / "ca.crt").write_text(sandbox.ca_pem)
    configuration.mkdir()
    text = one(documents, "ConfigMap")["data"]["config.yaml"]
    assert "apiAddress: :8443\n" in text
    (configuration / "config.yaml").write_text(text.replace(":8443", f"127.0.0.1:{port}"))
    return {
        "/etc/sluice/configuration": configuration,
        "/var/run/secrets/kubernetes.io/serviceaccount": account,
    }


async def _install(sandbox: Sandbox, documents: list[Object]) -> str:
    """Create only the chart's ServiceAccounts and RBAC objects; return the token of the ServiceAccount `sluice`."""
    admin = sandbox.local("admin")
    await admin.create("namespaces", "", {"metadata": {"name": NAMESPACE}})
    for document in documents:
        if document["apiVersion"].startswith("rbac.") or document["kind"] == "ServiceAccount":
            namespace = document["metadata"].get("namespace", "")
            await admin.create(f"{document['kind'].lower()}s", namespace, document)
    name = f"system:serviceaccount:{NAMESPACE}:sluice"
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
    return sandbox.add_user(User(name, "1", groups))


@pytest.mark.costly
@pytest.mark.skipif(not may_unshare(), reason="needs the right to make a mount namespace, which root has")
async def test_pod_of_the_chart_serves_as_uid_65532_on_a_read_only_root(tree: Path, tmp_path: Path):
    """With only the configuration, arguments and permissions of the chart."""
    documents = rendered({"config": {"logFormat": "json"}})
    (container,) = one(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    port = free_port()
    async with Sandbox(controllers=False) as sandbox:
        token = await _install(sandbox, documents)
        volumes = _pod_volumes(tmp_path / "volumes", sandbox, documents, token=token, port=port)
        service = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": sandbox.url.rpartition(":")[2]}
        began = time.monotonic()
        async with contained(tree, tmp_path / "pod", container["args"], volumes=volumes, **service) as process:
            lines: list[Object] = []
            assert process.stderr is not None
            while line := await process.stderr.readline():
                lines.append(json.loads(line))
                if "decides from now on" in lines[-1]["message"]:
                    break
            took = time.monotonic() - began
            assert any("decides from now on" in each["message"] for each in lines), lines
            assert owner(process.pid) == 65532
            assert [each for each in lines if each["level"] in ("error", "warning")] == []
        admin = sandbox.local("admin")
        (configuration,) = admin.list("mutatingwebhookconfigurations")
        assert configuration["webhooks"][0]["clientConfig"]["service"]["name"] == "sluice-webhook"
        assert [each["metadata"]["name"] for each in admin.list("apiservices")] == ["v1.sluice.dev"]
        assert [each["metadata"]["name"] for each in admin.list("secrets")] == ["sluice-webhook-certificates"]
    print(f"the tree has {size(tree) / 2**20:.1f} MiB; from the start of the process until it decides: {took:.1f} s")


def owner(process: int) -> int:
    return Path(f"/proc/{process}").stat().st_uid
