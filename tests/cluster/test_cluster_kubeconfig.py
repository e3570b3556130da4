"""Loading of kubeconfigs: one-line error messages, embedded keys, imported modules."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import ssl
import subprocess
import sys
import tempfile
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from scripted_server import DAY, issue

from admission.cluster import credentials
from admission.cluster.client import Client
from admission.cluster.credentials import load_kubeconfig
from admission.cluster.errors import BadKubeconfig

URL = "https://127.0.0.1:6443"


async def refusal(path: object, context: str | None = None) -> str:
    with pytest.raises(BadKubeconfig) as caught:
        async with Client.from_kubeconfig(str(path), context):
            pass
    message = str(caught.value)
    assert "\n" not in message
    return message


async def test_missing_kubeconfig_is_reported_with_its_path(tmp_path, monkeypatch):
    path = tmp_path / "nothing"
    expected = f"there is no kubeconfig at {path}: name one with --kubeconfig or $KUBECONFIG"
    assert await refusal(path) == expected
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(BadKubeconfig, match=r"there is no kubeconfig at .*nothing"):
        async with Client.from_kubeconfig():
            pass


async def test_directory_in_place_of_a_kubeconfig_is_rejected(tmp_path):
    assert await refusal(tmp_path) == f"kubeconfig {tmp_path} cannot be read: Is a directory"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a: b\nc: [", "is not YAML (line 2: "),
        (b"\x80\x81", "is not YAML"),
        (b"hello", "is no kubeconfig: it must be a mapping of kind Config"),
        (b"", "is no kubeconfig"),
        (b"kind: Pod", "is no kubeconfig"),
        (b"kind: Config", "has no current-context: set it with `kubectl config use-context`"),
        (b"kind: Config\ncurrent-context: x", "there is no 'x' among its contexts (none)"),
        (b"kind: Config\ncurrent-context: x\ncontexts: hello", "there is no 'x' among its contexts (none)"),
    ],
)
async def test_file_that_is_no_kubeconfig_is_rejected_with_the_reason(tmp_path, text, expected):
    path = tmp_path / "kubeconfig"
    path.write_bytes(text)
    message = await refusal(path)
    assert str(path) in message
    assert expected in message


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"current-context": None}, "has no current-context"),
        ({"contexts": [{"name": "test", "context": {"cluster": "test"}}]}, "context 'test' names no user"),
        ({"users": []}, "there is no 'test' among its users (none)"),
        ({"clusters": [{"name": "other", "cluster": {}}]}, "there is no 'test' among its clusters (other)"),
        ({"clusters": [{"name": "test", "cluster": {}}]}, "cluster 'test' has no server with an http(s) address"),
        ({"cluster": {"server": "127.0.0.1:6443"}}, "cluster 'test' has no server with an http(s) address"),
        ({"cluster": {"certificate-authority": "/nowhere"}}, "File does not exists: /nowhere"),
        ({"cluster": {"certificate-authority-data": "x"}}, "Invalid base64-encoded string"),
        ({"cluster": {"certificate-authority-data": "%"}}, "is no PEM certificate"),
        (
            {"cluster": {"certificate-authority-data": base64.b64encode(b"hello").decode()}},
            f"the certificate authority for {URL} is no PEM certificate",
        ),
        ({"user": {"client-certificate": "/nowhere", "client-key": "/nowhere"}}, "File does not exists: /nowhere"),
        (
            {
                "user": {
                    "client-certificate-data": base64.b64encode(b"hello").decode(),
                    "client-key-data": base64.b64encode(b"hello").decode(),
                }
            },
            f"the client certificate for {URL} cannot be used",
        ),
        ({"user": {"exec": {"apiVersion": "v1", "command": "/no/such/plugin"}}}, "/no/such/plugin"),
        (
            {"user": {"exec": {"apiVersion": "v1", "command": "sh", "args": ["-c", "echo log in first >&2; exit 3"]}}},
            "exec: process returned 3. log in first",
        ),
        ({"user": {"tokenFile": "/nowhere"}}, "/nowhere"),
        ({"user": {"auth-provider": {"name": "oidc"}}}, "oidc: missing configuration"),
    ],
)
async def test_invalid_kubeconfig_entry_is_reported(kubeconfig, change, expected):
    assert expected in await refusal(kubeconfig(URL, **change))


def plugin(script: str) -> dict[str, object]:
    return {"exec": {"apiVersion": "v1", "command": "sh", "args": ["-c", script]}}


def is_running(pid_file: Path) -> bool:
    return Path(f"/proc/{pid_file.read_text().strip()}").exists()


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("hello", "exec: failed to decode process output"),
        ("[1]", "exec: the output is no ExecCredential with a status"),
        ('{"apiVersion": "v1"}', "exec: the output is no ExecCredential with a status"),
        ('{"apiVersion": "v2", "status": {"token": "a"}}', "exec: plugin api version v2 does not match v1"),
        ('{"apiVersion": "v1", "status": {}}', "exec: the output has neither a token nor a client certificate"),
        (
            '{"apiVersion": "v1", "status": {"clientCertificateData": "a"}}',
            "exec: the output has neither a token nor a client certificate with its key",
        ),
    ],
)
async def test_useless_output_of_an_exec_plugin_is_reported_once(kubeconfig, caplog, output, expected):
    assert expected in await refusal(kubeconfig(URL, user=plugin(f"echo '{output}'")))
    assert not caplog.records


async def test_exec_plugin_that_does_not_answer_is_killed(kubeconfig, tmp_path, monkeypatch):
    """A server tries again every minute: otherwise the programs would accumulate."""
    monkeypatch.setattr(credentials, "PLUGIN_SECONDS", 2.0)
    pid = tmp_path / "pid"
    message = await refusal(kubeconfig(URL, user=plugin(f"sleep 1000 & echo $! > {pid}; wait")))
    assert "its exec plugin or identity provider has not answered within 2 s" in message
    while pid.exists() and is_running(pid):  # noqa: ASYNC110  another process, which may be killed before it wrote
        await asyncio.sleep(0.01)


async def test_exec_plugin_may_print_any_amount_of_messages(kubeconfig):
    credential = '{"apiVersion": "v1", "status": {"token": "made"}}'
    user = plugin(f"head -c 200000 /dev/zero >&2; echo '{credential}'")
    async with Client.from_kubeconfig(str(kubeconfig(URL, user=user))) as client:
        assert await client.bearer_token() == "made"


async def test_failing_exec_plugin_is_run_again_after_doubling_pauses_and_its_recovery_is_noticed(kubeconfig, tmp_path):
    now, runs, out = [0.0], tmp_path / "runs", tmp_path / "logged-out"
    status = {"token": "made", "expirationTimestamp": "2020-01-01T00:00:00Z"}
    credential = json.dumps({"apiVersion": "v1", "status": status})
    user = plugin(f"echo >> {runs}; test ! -e {out} || {{ echo log in first >&2; exit 3; }}; echo '{credential}'")
    path = str(kubeconfig(URL, user=user))
    async with Client(lambda: load_kubeconfig(path, None, clock=lambda: now[0])) as client:
        for _ in range(2):
            assert await client.bearer_token() == "made"
            out.touch()
            attempts = []
            for _ in range(200):
                runs.write_text("")
                now[0] += 1
                with suppress(BadKubeconfig):
                    await client.bearer_token()
                attempts += [now[0]] * len(runs.read_text())
            with pytest.raises(BadKubeconfig, match="log in first"):
                await client.bearer_token()
            assert [later - earlier for earlier, later in pairwise(attempts)][:7] == [1, 2, 4, 8, 16, 30, 30]
            out.unlink()
            now[0] = attempts[-1] + 30


async def test_unknown_context_argument_is_rejected(kubeconfig):
    assert "there is no 'prod' among its contexts (test)" in await refusal(kubeconfig(URL), "prod")


async def test_expired_client_certificate_is_rejected(kubeconfig, authority):
    mine = issue("me", authority, ends=-DAY)
    user = {
        "client-certificate-data": base64.b64encode(mine.pem).decode(),
        "client-key-data": base64.b64encode(mine.key_pem).decode(),
    }
    message = await refusal(kubeconfig(URL, user=user))
    ended = f"{mine.certificate.not_valid_after_utc:%Y-%m-%d %H:%M}"
    assert (
        message == f"the client certificate for {URL} expired on {ended} UTC: renew it and write it into the kubeconfig"
    )


async def test_in_cluster_client_outside_of_a_pod_is_rejected(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(BadKubeconfig, match="this is no pod with a service account"):
        async with Client.in_cluster():
            pass


@pytest.fixture
def embedded(kubeconfig, authority):
    """A kubeconfig with certificates and a key in it, and the key."""
    mine = issue("me", authority)
    inside = {"certificate-authority-data": base64.b64encode(authority.pem).decode()}
    user = {
        "client-certificate-data": base64.b64encode(mine.pem).decode(),
        "client-key-data": base64.b64encode(mine.key_pem).decode(),
    }
    return str(kubeconfig(URL, cluster=inside, user=user)), mine.key_pem


def test_embedded_key_is_kept_in_memory_and_closed_with_its_configuration(embedded, tmp_path, monkeypatch):
    """A killed process must leave no key on disk."""
    file, key = embedded
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    gc.collect()
    before = _files_in_memory()
    configuration = asyncio.run(load_kubeconfig(file, None))
    assert _files_in_memory() > before
    for _ in range(2):
        assert Path(configuration.key_file).read_bytes() == key
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    assert list(temporary.iterdir()) == []
    del configuration
    gc.collect()
    assert _files_in_memory() == before


def _files_in_memory() -> int:
    links = (link for link in Path("/proc/self/fd").iterdir() if link.is_symlink())  # one closes meanwhile
    return sum("memfd:sluice-kubeconfig" in os.readlink(link) for link in links)


def test_embedded_key_is_in_a_private_directory_if_memfd_is_unavailable(embedded, monkeypatch):
    file, key = embedded
    monkeypatch.delattr(os, "memfd_create")
    before = len(os.listdir("/proc/self/fd"))
    configuration = asyncio.run(load_kubeconfig(file, None))
    assert len(os.listdir("/proc/self/fd")) == before
    file = Path(configuration.key_file)
    assert file.read_bytes() == key
    assert file.parent.stat().st_mode & 0o077 == 0


@pytest.mark.costly
def test_loading_a_kubeconfig_does_not_import_kubernetes_models_or_break_their_use(kubeconfig):
    code = (
        "import asyncio, sys\n"
        "from admission.cluster.credentials import load_kubeconfig\n"
        "ours = asyncio.run(load_kubeconfig(sys.argv[1], None))\n"
        "print('kubernetes_asyncio.client.models' in sys.modules)\n"
        "from kubernetes_asyncio import client, config\n"
        "async def others():\n"
        "    await config.load_kube_config(sys.argv[1])\n"
        "    async with client.ApiClient() as usual, await config.new_client_from_config(sys.argv[1]) as made:\n"
        "        print(type(usual) is type(made), made.configuration.host == ours.host)\n"
        "asyncio.run(others())\n"
        "print(isinstance(ours, client.Configuration), client.V1Job(kind='Job').kind)\n"
    )
    command = [sys.executable, "-c", code, str(kubeconfig("https://127.0.0.1:1"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\nTrue True\nTrue Job\n"
