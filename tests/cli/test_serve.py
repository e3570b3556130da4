"""`sluice serve` as a process: Jobs run although it is killed, and a failed start is explained in one sentence."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import socket
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from ports import free_port
from serve_processes import NODE, QUEUES, TOKEN, all_complete, all_finished, gate_flags, job, serving, sluice

from admission.sandbox.sandbox import Sandbox
from admission.store.store import Store
from tests.api.pki import Authority
from tests.queue_objects import create_objects


async def finished(*arguments: str, **environment: str) -> tuple[int | None, str, str]:
    process = await sluice(*arguments, **environment)
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


def error_of(text: str) -> str:
    """The only error line in the output; fails if there is a traceback."""
    assert "Traceback" not in text, text
    (line,) = [line for line in text.splitlines() if line.startswith("error: ")]
    return line


class OldAuthority:
    """The authority of a cluster whose certificates have no key identifiers, which Python 3.13 refuses by itself."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder, "cluster-ca", key_identifiers=False)
        self.pem = authority.pem
        self.server = partial(authority.server, "127.0.0.1")


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    sandbox = Sandbox(speed=60)
    sandbox._authority = OldAuthority(tmp_path)
    async with sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        yield sandbox


def on_file(folder: Path) -> str:
    return f"sqlite:///{folder / 'sluice.db'}"


@pytest.mark.costly
async def test_jobs_complete_although_serve_is_killed_and_restarted(sandbox, tmp_path):
    """With webhooks over TLS; `serve` is killed while the Jobs run."""
    port = free_port()
    webhooks = gate_flags(tmp_path)
    (tmp_path / "queues.yaml").write_text(QUEUES)
    server = {"SLUICE_SERVER": f"http://127.0.0.1:{port}"}
    alice = sandbox.local("alice")
    admin = sandbox.local("admin")
    await admin.create("nodes", "", NODE)

    async with serving(tmp_path, on_file(tmp_path), *webhooks, port=port) as replica:
        code, output, _ = await finished("apply", "-f", str(tmp_path / "queues.yaml"), **server)
        assert (code, output.splitlines()[-1]) == (0, "localqueue.sluice.dev/lq created")
        for number in range(12):
            created = await alice.create("jobs", "default", job(f"j{number}"))
            assert created["spec"]["suspend"] is True
            assert created["metadata"]["annotations"]["sluice.dev/submitted-by"] == "alice"
        replica.send(signal.SIGKILL)
        await replica.process.wait()

    async with serving(tmp_path, on_file(tmp_path), *webhooks, port=port) as replica:
        await all_complete(admin, 12)
        async with Store.open(f"sqlite:///{tmp_path / 'sluice.db'}") as store:
            records = await all_finished(store, 12)
        replica.send(signal.SIGTERM)
        await replica.process.wait()
        assert replica.process.returncode == 0
    pods = [pod for pod in admin.list("pods") if pod["status"]["phase"] == "Succeeded"]
    assert len(pods) == 12
    assert {(record.state, record.outcome, record.workload.user) for record in records} == {
        ("finished", "Succeeded", "alice")
    }


async def test_second_serve_on_the_same_sqlite_file_is_refused(sandbox, tmp_path):
    async with serving(tmp_path, on_file(tmp_path)) as first:
        await first.until_ready()
        code, _, errors = await finished(
            "serve", f"--kubeconfig={tmp_path / 'kubeconfig'}", f"--database-url=sqlite:///{tmp_path / 'sluice.db'}"
        )
        assert code == 1
        assert "another Sluice" in error_of(errors)
        assert first.process.returncode is None


async def test_serve_with_a_port_in_use_ends_with_an_error(sandbox, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with serving(tmp_path, on_file(tmp_path), port=taken.getsockname()[1]) as replica:
            await replica.process.wait()
    assert replica.process.returncode == 1
    assert "choose another address: --api-address HOST:PORT" in error_of(replica.log.decode())
    assert "never awaited" not in replica.log.decode()


async def test_api_requires_the_admin_token(sandbox, tmp_path):
    async with serving(tmp_path, on_file(tmp_path)) as replica:
        await replica.until_ready()
        for token in (None, "wrong"):
            assert (await replica.get("/debug/statistics", token=token))[0] == 401
        status, body = await replica.get("/debug/statistics", token=TOKEN)
        assert status == 200
        assert json.loads(body)["role"] == "leading, epoch 1"


async def test_full_disk_fails_readiness_and_recovery_needs_no_restart(sandbox, tmp_path):
    """No file of the process may grow any more: each write to the database fails, as on a full disk."""
    admin = sandbox.local("admin")
    await admin.create("nodes", "", NODE)
    async with serving(tmp_path, on_file(tmp_path)) as replica:
        await replica.until_ready()
        await create_objects(on_file(tmp_path), QUEUES)
        pid = replica.process.pid
        unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        waiting = job("waits")
        waiting["spec"]["suspend"] = True
        await admin.create("jobs", "default", waiting)
        while "the disk of the database" not in (await replica.get("/readyz?verbose"))[1]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert (await replica.get("/livez"))[0] == 200
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
        await all_complete(admin, 1)
        await replica.until_ready()
    log = replica.log.decode()
    assert log.count("deciding again") == 1
    assert log.count(" ERROR ") <= 2  # that the leader restarts, and why it cannot; not repeated each second
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"SLUICE_KUBECONFIG": "/nowhere/kubeconfig"}, "no kubeconfig at /nowhere/kubeconfig"),
        ({"SLUICE_DATABASE_URL": "mysql://localhost/x"}, "postgresql://"),
        ({"SLUICE_DATABASE_URL": "sqlite:////nowhere/sluice.db"}, "/nowhere"),
        ({"SLUICE_LOG_LEVEL": "loud"}, "SLUICE_LOG_LEVEL"),
    ],
)
async def test_invalid_setting_ends_the_start_with_one_error_line(sandbox, tmp_path, environment, says):
    usual = {"SLUICE_DATABASE_URL": on_file(tmp_path), "SLUICE_KUBECONFIG": str(tmp_path / "kubeconfig")}
    code, _, errors = await finished("serve", **usual | environment)
    assert code == 1
    assert says in error_of(errors)
    assert not (tmp_path / "sluice.db").exists(), "a database was made for nothing"


async def test_serve_is_not_ready_while_the_api_server_is_unreachable(tmp_path):
    dead = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{free_port()}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(dead))
    async with serving(tmp_path, on_file(tmp_path)) as replica:
        while (answer := await replica.get("/readyz"))[0] == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert "check that the server is running" in answer[1]
        replica.send(signal.SIGTERM)
        assert await replica.process.wait() == 0


async def test_untrusted_certificate_of_the_api_server_ends_the_start(sandbox, tmp_path):
    config = sandbox.kubeconfig("sluice")
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    async with serving(tmp_path, on_file(tmp_path)) as replica:
        await replica.process.wait()
    assert replica.process.returncode == 1
    assert "the server's certificate is not trusted" in error_of(replica.log.decode())


async def test_rejected_cluster_token_ends_the_start(sandbox, tmp_path):
    config = sandbox.kubeconfig("sluice")
    config["users"][0]["user"]["token"] = "wrong"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    async with serving(tmp_path, on_file(tmp_path)) as replica:
        await replica.process.wait()
    assert replica.process.returncode == 1
    assert "401" in error_of(replica.log.decode())


async def test_unmigrated_postgresql_ends_the_start_and_names_sluice_migrate(sandbox, tmp_path, postgresql):
    await asyncio.to_thread(postgresql.execute, "DROP DATABASE IF EXISTS unmigrated", "CREATE DATABASE unmigrated")
    code, _, errors = await finished(
        "serve",
        f"--kubeconfig={tmp_path / 'kubeconfig'}",
        f"--database-url={postgresql.url('unmigrated')}",
        f"--api-address=127.0.0.1:{free_port()}",
    )
    assert code == 1
    assert "sluice migrate" in error_of(errors)
