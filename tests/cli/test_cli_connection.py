"""Server and credentials of a command, from flags, environment or kubeconfig, and errors of the connection."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from command_runner import TOKEN, Sluice

from admission.api.application import listening
from tests.api.pki import Authority

NOWHERE = "http://127.0.0.1:1"


def kubeconfig(file: Path, server: str, **user: str) -> Path:
    content = {
        "kind": "Config",
        "current-context": "usual",
        "contexts": [
            {"name": "usual", "context": {"cluster": "c", "user": "u"}},
            {"name": "other", "context": {"cluster": "c", "user": "u", "namespace": "theirs"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    file.write_text(yaml.safe_dump(content))
    return file


async def test_server_and_token_come_from_flags_or_the_environment(sluice, tmp_path):
    url = sluice.environment["SLUICE_SERVER"]
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    bare = Sluice()
    by_environment = await bare("get", "cq", SLUICE_SERVER=url, SLUICE_TOKEN=TOKEN)
    by_flags = await bare("get", "cq", "--server", url, "--token-file", str(tmp_path / "token"))
    flags_first = await bare("get", "cq", "--server", url, SLUICE_SERVER=NOWHERE, SLUICE_TOKEN=TOKEN)
    token_first = await bare("get", "cq", SLUICE_SERVER=url, SLUICE_TOKEN=TOKEN, SLUICE_ADMIN_TOKEN="another")
    for done in (by_environment, by_flags, flags_first, token_first):
        assert (done.exit_code, done.stderr) == (0, "no clusterqueues found\n")


async def test_kubeconfig_and_context_select_server_and_namespace(sluice, tmp_path):
    # The API of Sluice stands for an API server with Sluice behind it: to the client they look the same.
    file = kubeconfig(tmp_path / "config", sluice.environment["SLUICE_SERVER"], token=TOKEN)
    bare = Sluice()
    usual = await bare("get", "lq", KUBECONFIG=str(file))
    assert (usual.exit_code, usual.stderr) == (
        0,
        "no localqueues found in namespace default; use -A for all namespaces\n",
    )
    context = await bare("get", "lq", "--context", "other", KUBECONFIG=str(file))
    assert (context.exit_code, context.stderr) == (
        0,
        "no localqueues found in namespace theirs; use -A for all namespaces\n",
    )
    named = await bare("get", "lq", "-n", "mine", "--kubeconfig", str(file), SLUICE_SERVER=NOWHERE, SLUICE_TOKEN="x")
    assert (named.exit_code, named.stderr) == (0, "no localqueues found in namespace mine; use -A for all namespaces\n")
    server_first = await bare("get", "lq", KUBECONFIG=str(file), SLUICE_SERVER=NOWHERE, SLUICE_TOKEN="x")
    assert server_first.stderr.startswith(f"error: {NOWHERE} cannot be reached")


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        ([], {}, "no server is configured: set SLUICE_SERVER and SLUICE_TOKEN"),
        ([], {"SLUICE_SERVER": NOWHERE}, "no token is configured: set SLUICE_TOKEN"),
        ([], {"SLUICE_TOKEN": "t"}, "http://127.0.0.1:8080"),
        (["--token-file", "/nonexistent"], {}, "the token file /nonexistent cannot be read"),
        (["--token-file", "/dev/null"], {}, "the token file /dev/null is empty"),
        (["--ca", "/nonexistent"], {"SLUICE_SERVER": "https://x", "SLUICE_TOKEN": "t"}, "/nonexistent cannot be used"),
        (["--kubeconfig", "/nonexistent"], {}, "there is no kubeconfig at /nonexistent"),
        ([], {"SLUICE_SERVER": NOWHERE, "SLUICE_TOKEN": "ä"}, "control or non-ASCII characters"),
    ],
)
def test_unusable_connection_settings_are_reported_on_one_line(arguments, environment, says):
    done = Sluice().run("get", "cq", *arguments, **environment)
    assert (done.exit_code, done.stdout) == (1, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        (("hold", "train"), "kubectl label job train sluice.dev/hold=true"),
        (("release", "job/it's", "-n", "a"), "kubectl label job 'it'\"'\"'s' sluice.dev/hold- -n a"),
        (("hold", "wl/job-train-a1-1c5f9"), "kubectl label job train-a1 sluice.dev/hold=true"),
        (("release", "jobset-set-1c5f9"), "kubectl label jobset set sluice.dev/hold-"),
        (("hold", "job/job-train-1c5f9"), "kubectl label job job-train-1c5f9 sluice.dev/hold=true"),
        (("prioritize", "train", "--top"), ""),
    ],
)
def test_hold_and_release_suggest_kubectl_if_the_server_is_unreachable(arguments, instead):
    done = Sluice({"SLUICE_SERVER": NOWHERE, "SLUICE_TOKEN": "t"}).run(*arguments)
    assert done.exit_code == 1
    first, *rest = done.stderr.splitlines()
    assert first.startswith(f"error: {NOWHERE} cannot be reached")
    assert rest == ([f"error: to do this without Sluice's API: {instead}"] if instead else [])


async def test_unknown_context_is_reported_with_the_existing_ones(tmp_path):
    file = kubeconfig(tmp_path / "config", NOWHERE, token="t")
    done = await Sluice()("get", "cq", "--context", "nope", KUBECONFIG=str(file))
    assert done.exit_code == 1
    assert "there is no 'nope' among its contexts (other, usual)" in done.stderr


async def test_refused_kubeconfig_credentials_ask_for_a_new_login(sluice, tmp_path):
    file = kubeconfig(tmp_path / "config", sluice.environment["SLUICE_SERVER"], token="wrong")
    done = await Sluice()("get", "cq", KUBECONFIG=str(file))
    assert done.exit_code == 1
    assert done.stderr.endswith("by the credentials of the kubeconfig; log in to the cluster again\n")


def test_link_named_kubectl_sluice_is_a_kubectl_plugin(tmp_path):
    link = tmp_path / "kubectl-sluice"
    link.symlink_to(Path(sys.executable).with_name("sluice"))
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["kubectl", "sluice", "get", "--help"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert done.stdout.startswith("Usage: kubectl sluice get ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed_for_each_shell(shell):
    done = Sluice().run("completion", shell)
    assert done.exit_code == 0
    assert "_SLUICE_COMPLETE" in done.stdout


async def test_completion_offers_types_and_names(sluice):
    for name in ("team-a", "team-b", "other"):
        await sluice("create", "cohort", name)

    async def completed(line: str) -> list[str]:
        environment = {
            "_SLUICE_COMPLETE": "bash_complete", "COMP_WORDS": f"sluice {line}", "COMP_CWORD": str(len(line.split(" ")))
        }  # fmt: skip
        from admission.cli.main import main

        done = await sluice.completing(main, **environment)
        return [entry.partition(",")[2] for entry in done.splitlines() if entry]

    assert "clusterqueues" in await completed("get cl")
    assert await completed("get cohort te") == ["team-a", "team-b"]
    assert await completed("delete co/o") == ["co/other"]
    assert await completed("get cohort --server http://127.0.0.1:1 te") == []


async def test_wrong_and_missing_tokens_are_reported(sluice, tmp_path):
    wrong = await sluice("get", "cq", SLUICE_ADMIN_TOKEN="b-token")
    assert wrong.exit_code == 1
    assert wrong.stderr.startswith("error: the bearer token is not valid for http://127.0.0.1:")
    none = await sluice("get", "cq", SLUICE_ADMIN_TOKEN="")
    assert none.stderr == "error: no token is configured: set SLUICE_TOKEN, or use --token-file FILE\n"
    (tmp_path / "token").write_text("a-token\n")
    right = await sluice("get", "cq", "--token-file", str(tmp_path / "token"), SLUICE_ADMIN_TOKEN="")
    assert right.exit_code == 0


async def test_authority_of_the_server_is_named_by_a_flag(tmp_path):
    authority = Authority(tmp_path, "company-ca", key_identifiers=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.server("127.0.0.1").load(context)
    async with listening(web.Application(), "127.0.0.1", 0, ssl_context=context) as url:
        secure = url.replace("http:", "https:")
        trusting = await Sluice()("get", "cq", "--ca", str(authority.file), SLUICE_SERVER=secure, SLUICE_TOKEN=TOKEN)
        assert "is not Sluice" in trusting.stderr  # which it was asked
        other = await Sluice()("get", "cq", SLUICE_SERVER=secure, SLUICE_TOKEN=TOKEN)
        assert "is not trusted" in other.stderr


async def test_https_url_of_an_http_server_is_reported_as_a_tls_error(sluice):
    url = sluice.environment["SLUICE_SERVER"].replace("http://", "https://")
    done = await sluice("get", "cq", SLUICE_SERVER=url)
    assert done.exit_code == 1
    assert "TLS" in done.stderr


@pytest.mark.parametrize("status", [200, 500])
async def test_server_that_is_not_sluice_is_reported(sluice, status):
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text="<html>", status=status)

    other = web.Application()
    other.router.add_get("/{path:.*}", handler)
    async with listening(other, "127.0.0.1", 0) as url:
        done = await sluice("get", "cq", SLUICE_SERVER=url)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: the server at {url}")
    assert "is not Sluice" in done.stderr


async def test_cluster_without_the_apiservice_is_reported(tmp_path):
    """A user who runs `serve` beside a cluster, and has no token in this shell, reaches the cluster by kubeconfig."""
    async with listening(web.Application(), "127.0.0.1", 0) as url:
        file = kubeconfig(tmp_path / "config", url, token=TOKEN)
        manifest = "apiVersion: sluice.dev/v1\nkind: Cohort\nmetadata: {name: a}\n"
        done = await Sluice({"KUBECONFIG": str(file)})("apply", "-f", "-", "--wait", "0", stdin=manifest)
    assert done.exit_code == 1
    assert f"no APIService v1.sluice.dev is registered at {url}" in done.stderr
    assert "set SLUICE_SERVER and SLUICE_TOKEN to connect to Sluice itself" in done.stderr
