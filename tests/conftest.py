"""Databases for tests: every test that asks for one runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from admission.store.migrate import migrate
from admission.store.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_BINARIES = Path(os.environ.get("POSTGRESQL_BIN", "/usr/lib/postgresql/15/bin"))
_TEMPLATE = "sluice_template"


@dataclass(frozen=True)
class PostgreSQL:
    """A server of the tests' own, on a port of its own."""

    port: int
    password: str

    def url(self, database: str) -> str:
        """The URL as a user would write it."""
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/{database}"

    def execute(self, *statements: str) -> None:
        """Run statements as the superuser, each in a transaction of its own."""

        async def run() -> None:
            connection = await asyncpg.connect(self.url("postgres"))
            try:
                for statement in statements:
                    await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(run())


class Clock:
    """Seconds since the epoch that pass only when they are told to."""

    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A PostgreSQL server with a migrated template database; one for the whole session."""
    if not (_BINARIES / "initdb").exists():
        hint = "install it (Debian: apt-get install postgresql-15) or name its folder in POSTGRESQL_BIN"
        pytest.fail(f"there is no PostgreSQL server in {_BINARIES}; {hint}", pytrace=False)
    # PostgreSQL refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="sluice-postgresql-"))
    server = PostgreSQL(port=_free_port(), password=secrets.token_hex(8))
    (folder / "password").write_text(server.password)
    if user:
        shutil.chown(folder, user)
        shutil.chown(folder / "password", user)
    make = [_BINARIES / "initdb", "--no-sync", "--username=postgres", f"--pgdata={folder / 'data'}"]
    make += ["--auth=scram-sha-256", f"--pwfile={folder / 'password'}", "--encoding=UTF8", "--locale=C"]
    _run(make, folder=folder, user=user)
    settings = f"-p {server.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    control = [_BINARIES / "pg_ctl", f"--pgdata={folder / 'data'}", "--wait", "--silent"]
    try:
        _run([*control, f"--log={folder / 'log'}", f"--options={settings}", "start"], folder=folder, user=user)
        try:
            server.execute(f"CREATE DATABASE {_TEMPLATE}")
            asyncio.run(migrate(server.url(_TEMPLATE)))
            yield server
        finally:
            _run([*control, "--mode=immediate", "stop"], folder=folder, user=user)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, to be copied."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    asyncio.run(migrate(f"sqlite:///{path}"))
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_kind(request: pytest.FixtureRequest) -> str:
    """The tests of a store run once for each."""
    kind: str = request.param
    return kind


@pytest.fixture
def empty_database_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tables; for SQLite, a file that does not exist yet."""
    if database_kind == "sqlite":
        yield f"sqlite:///{tmp_path / 'sluice.db'}"
    else:
        yield from _postgresql_database(request.getfixturevalue("postgresql"), template="template1")


@pytest.fixture
def database_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A migrated database without objects or workloads."""
    if database_kind == "sqlite":
        path = tmp_path / "sluice.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
    else:
        yield from _postgresql_database(request.getfixturevalue("postgresql"), template=_TEMPLATE)


@pytest.fixture
async def store(database_url: str, clock: Clock) -> AsyncIterator[Store]:
    """A store on an empty database, on the test's clock."""
    async with Store.open(database_url, clock=clock) as opened:
        yield opened


def _postgresql_database(server: PostgreSQL, *, template: str) -> Iterator[str]:
    name = f"test_{secrets.token_hex(8)}"
    server.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield server.url(name)
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _run(arguments: list[str | Path], *, folder: Path, user: str | None) -> None:
    # The server inherits the output and would keep a pipe open for ever.
    with (folder / "output").open("ab") as output:
        done = subprocess.run(arguments, cwd=folder, user=user, stdout=output, stderr=output, check=False)
    if done.returncode:
        pytest.fail(f"{arguments[0]} failed:\n{(folder / 'output').read_text()}", pytrace=False)
