"""Changes of settings while `sluice serve` runs."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from postgresql_server import PostgreSQL
from serve_processes import Replica, serving

from admission.cli.configuration.settings import Settings, load_settings
from admission.cli.serve.reload import Reload
from admission.sandbox.sandbox import Sandbox
from admission.store.store import Store


async def until_logged(replica: Replica, text: str) -> None:
    while text not in replica.log.decode():
        assert replica.process.returncode is None, replica.log.decode()
        await asyncio.sleep(0.02)


@pytest.mark.costly
async def test_sighup_reloads_the_configuration_file(tmp_path: Path):
    file = tmp_path / "sluice.yaml"
    file.write_text("logLevel: info\n")
    async with Sandbox(controllers=False) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}", f"--config={file}") as replica:
            await replica.until_ready()
            file.write_text("logLevel: debug\nretention: {audit: 30d}\nleaseDuration: 20\n")
            replica.send(signal.SIGHUP)
            await until_logged(replica, "now in effect: retention, logLevel")
            await until_logged(replica, "read only at startup, so that a restart is needed: leaseDuration")
            file.write_text("logLevel: loud\n")
            replica.send(signal.SIGHUP)
            await until_logged(replica, f"because they are invalid: logLevel in {file}:1")
            await replica.until_ready()


async def test_changed_configuration_file_is_noticed_without_a_signal(tmp_path: Path):
    file = tmp_path / "sluice.yaml"
    file.write_text("logLevel: info\n")
    used: list[str] = []
    looks = 0
    done = asyncio.Event()

    async def pause(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            file.write_text("logLevel: error\n")
        if looks == 6:
            done.set()

    def use(settings: Settings) -> None:
        used.append(settings.log_level)

    settings = load_settings({}, config=file)
    reload = Reload(settings, lambda: load_settings({}, config=file), [file], {"log_level": use})
    running = asyncio.create_task(reload.run(pause=pause))
    await done.wait()
    running.cancel()
    assert used == ["error"]


def test_pipe_in_place_of_the_configuration_file_is_not_read(tmp_path: Path, caplog):
    """Nobody writes into the pipe: reading it would stop `serve` for good."""
    file = tmp_path / "sluice.yaml"
    file.write_text("logLevel: error\n")
    used: list[str] = []
    settings = load_settings({}, config=file)
    uses = {"log_level": lambda changed: used.append(changed.log_level)}
    reload = Reload(settings, lambda: load_settings({}, config=file), [file], uses)
    file.unlink()
    os.mkfifo(file)
    Reload(settings, lambda: load_settings({}, config=file), [file], uses)  # looks at the files' contents
    reload.reload()
    assert f"{file} is not a regular file" in caplog.text
    assert not used


@pytest.mark.parametrize(
    ("url", "used"),
    [
        ("postgresql://sluice:new@db/sluice", True),
        ("postgresql://other:old@db/sluice", False),
        ("postgresql://sluice:old@db2/sluice", False),
        ("sqlite:///sluice.db", False),
    ],
)
def test_reload_of_the_database_url_accepts_only_a_new_password(url: str, used: bool, tmp_path: Path, caplog):
    file = tmp_path / "url"
    file.write_text("postgresql://sluice:old@db/sluice")
    flags = {"database_url_file": str(file)}
    urls: list[str] = []
    reload = Reload(
        load_settings(flags),
        lambda: load_settings(flags),
        [file],
        {"database_url": lambda settings: urls.append(settings.database_url)},
    )
    file.write_text(url)
    reload.reload()
    assert urls == ([url] if used else [])
    assert ("a restart is needed: databaseUrl" in caplog.text) is not used
    assert "old@" not in caplog.text


@pytest.mark.parametrize("url", ["mysql://nobody", "not a URL", "postgresql://sluice@db:port/sluice"])
def test_reload_with_an_invalid_database_url_changes_no_setting(url: str, tmp_path: Path, caplog):
    file, settings = tmp_path / "url", tmp_path / "sluice.yaml"
    file.write_text("postgresql://sluice:old@db/sluice")
    settings.write_text(f"databaseUrlFile: {file}\n")
    urls: list[str] = []
    levels: list[str] = []
    reload = Reload(
        load_settings({}, config=settings),
        lambda: load_settings({}, config=settings),
        [file],
        {
            "database_url": lambda new: urls.append(new.database_url),
            "log_level": lambda new: levels.append(new.log_level),
        },
    )
    file.write_text(url)
    settings.write_text(f"databaseUrlFile: {file}\nlogLevel: debug\n")
    reload.reload()
    assert "the changed settings are not used, because they are invalid" in caplog.text
    assert (urls, levels) == ([], [])
    file.write_text("postgresql://sluice:new@db/sluice")
    reload.reload()
    assert (urls, levels) == (["postgresql://sluice:new@db/sluice"], ["debug"])


@pytest.mark.postgres
async def test_store_uses_a_new_database_password_without_a_restart(postgresql: PostgreSQL, database_url: str):
    await asyncio.to_thread(
        postgresql.execute,
        "CREATE ROLE rotated LOGIN SUPERUSER PASSWORD 'first'",
    )
    url = database_url.replace(f"postgres:{postgresql.password}@", "rotated:{}@")
    try:
        async with Store.open(url.format("first")) as store:
            assert await store.health() is None
            await asyncio.to_thread(
                postgresql.execute,
                "ALTER ROLE rotated PASSWORD 'second'",
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rotated'",
            )
            assert "rotated" in str(await store.health())
            store.use_password_of(url.format("second"))
            assert await store.health() is None
    finally:
        await asyncio.to_thread(postgresql.execute, "DROP ROLE rotated")


@pytest.fixture
def database_kind() -> str:
    return "postgresql"
