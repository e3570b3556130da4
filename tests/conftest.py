"""What all tests share: databases, which come as SQLite and PostgreSQL, time limits, and a check that nothing leaks."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import inspect
import logging
import os
import resource
import secrets
import selectors
import shutil
import signal
import sys
import threading
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from postgresql_databases import MigratedDatabases
from postgresql_server import NoPostgreSQL, copy_files, running_postgresql

from admission.store.database.migrations import migrate
from admission.store.store import Store
from tests import compiled_statements, sluice_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator

    from postgresql_server import PostgreSQL

# Where PYTHONDONTWRITEBYTECODE is set, as in many containers, each run would compile all tests and modules again: a
# quarter of a minute for each worker.
sys.dont_write_bytecode = False

compiled_statements.share()

_TEMPLATE = "sluice_template"
_OF_PROPERTY = "_hypothesis_internal_use_settings"
"""Where Hypothesis keeps the settings of a function."""


class EventLoop(asyncio.SelectorEventLoop):
    """Gives connections that are being closed a second to end, before it closes itself.

    One that is still open then is told of when garbage is collected, and fails the test of that moment.
    """

    def __init__(self) -> None:
        self._watched = selectors.DefaultSelector()
        super().__init__(self._watched)

    def close(self) -> None:
        if not self.is_closed():
            self.run_until_complete(self._connections_ended())
        super().close()

    async def _connections_ended(self) -> None:
        until = self.time() + 1.0
        # It always watches a pipe of its own; nothing tells of a selector that has no other file any more.
        while len(self._watched.get_map()) > 1 and self.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The one loop that all tests run in."""
    return {"selector": EventLoop}


class Clock:
    """Seconds since the epoch that pass only when they are told to."""

    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.hookimpl(trylast=True)  # after Hypothesis, which warns of who uses it while plugins are loaded
def pytest_sessionstart(session: pytest.Session) -> None:
    """Spares workers what each would do in a new checkout.

    Which characters UTF-8 has is tried here while they collect tests; each would try it with the first text that
    Hypothesis draws in it: 1.3 s of processor time.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        from tests import divided_work

        session.config.pluginmanager.register(divided_work)
    elif session.config.getoption("numprocesses", default=None):
        from hypothesis import strategies

        threading.Thread(target=strategies.text().validate).start()


@pytest.hookimpl(trylast=True)  # after pytest has put tests together that share a fixture
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Bounds what a test may take from within its loop: pytest-timeout's exception is lost if it meets a callback."""
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            marker = item.get_closest_marker("timeout")
            limit = marker.args[0] if marker else float(config.getini("timeout"))
            # Well before it: to show a failure takes long on a busy machine, and the limit counts that, too.
            item.obj = _bounded(item.obj, 0.8 * limit)
    if (workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))) > 1:
        _fewer_examples(items)
        items[:] = _long_ones_first(items, workers=workers)


def _fewer_examples(items: list[pytest.Item]) -> None:
    """Try properties with a third of their examples, other ones in each run; without `-n` they have all of them."""
    seen: set[tuple[int, str]] = set()
    for item in items:
        # Of state machines, and of functions.
        for holder, name in ((getattr(item, "cls", None), "settings"), (getattr(item, "obj", None), _OF_PROPERTY)):
            known = getattr(holder, name, None)
            # Those that are the same in each run are few already, or chosen.
            if isinstance(known, hypothesis.settings) and not known.derandomize and (id(holder), name) not in seen:
                seen.add((id(holder), name))
                fewer = min(known.max_examples, max(10, known.max_examples // 3))
                setattr(holder, name, hypothesis.settings(known, max_examples=fewer))


def _long_ones_first(items: list[pytest.Item], *, workers: int) -> list[pytest.Item]:
    """Let two workers begin with the long tests, so that none is left with one when all others are done.

    Each worker begins with an equal part of the list, and takes from others' parts when it is done with its own. Only
    two, for many of the long tests are several processes, and on a busy machine they would meet their time limits.
    """
    long = [item for item in items if item.get_closest_marker("long")]
    others = _folders_mixed([item for item in items if not item.get_closest_marker("long")])
    begins = [long[::2], long[1::2]]
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        part = (len(items) - len(ordered)) // (workers - worker)
        begin = begins[worker] if worker < len(begins) else []
        rest = max(0, part - len(begin))
        ordered += begin + others[:rest]
        del others[:rest]
    return ordered + others


def _folders_mixed(items: list[pytest.Item]) -> list[pytest.Item]:
    """File after file, but of all folders at the same time: some compute, others mostly wait for what they have begun.

    Were all workers in one folder of those that wait, processors would be idle.
    """
    folders: dict[Path, dict[Path, list[pytest.Item]]] = {}
    for item in items:
        folders.setdefault(item.path.parent, {}).setdefault(item.path, []).append(item)
    placed: list[tuple[float, list[pytest.Item]]] = []
    for files in folders.values():
        total, before = sum(map(len, files.values())), 0
        for tests in files.values():
            placed.append(((before + len(tests) / 2) / total, tests))
            before += len(tests)
    placed.sort(key=lambda each: each[0])
    return [item for _, tests in placed for item in tests]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps modules and tests, which stay to the end, out of garbage collections: each would visit all of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()  # with what garbage there is: to look for it takes half a second
        gc.set_threshold(20_000, 10, 50)  # most of what a sandbox or a store makes lasts as long as the test
        gc.enable()


def _bounded(test: Callable[..., Awaitable[None]], seconds: float) -> Callable[..., Awaitable[None]]:
    @wraps(test)
    async def bounded(*args: object, **kwargs: object) -> None:
        async with asyncio.timeout(seconds):
            await test(*args, **kwargs)

    return bounded


@pytest.fixture(autouse=True)
def process_state() -> Iterator[None]:
    """Fails a test that leaves something changed in the process that later tests of the same worker would meet."""
    before = _process_state()
    yield
    assert _process_state() == before, "the test leaves the process changed"


def _process_state() -> dict[str, object]:
    root = logging.getLogger()
    # pytest has handlers of its own, other ones in each phase of a test.
    handlers = [handler for handler in root.handlers if not type(handler).__module__.startswith("_pytest.")]
    return {
        "environment": {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
        "folder": os.getcwd(),
        "log handlers": handlers,
        "log levels": [logging.getLogger(name).level for name in ("", "admission", "webhooks", "asyncio")],
        "logging disabled": root.manager.disable,
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
        "limits": [resource.getrlimit(what) for what in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)],
        "seconds between threads": sys.getswitchinterval(),
    }


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def postgresql_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a stopped server with a migrated template database, made once for all workers of a run."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    made, finished = shared / "postgresql", shared / "postgresql-made"
    with (shared / "postgresql-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            _make_postgresql(made)
            finished.touch()
    return made


def _make_postgresql(folder: Path) -> None:
    try:
        with running_postgresql() as server:
            server.execute(f"CREATE DATABASE {_TEMPLATE}")
            asyncio.run(migrate(server.url(_TEMPLATE)))
            server.stop()
            copy_files(server.folder, folder)
    except NoPostgreSQL as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def postgresql(postgresql_files: Path) -> Iterator[PostgreSQL]:
    """A PostgreSQL server with a migrated template database; one for the whole session."""
    with running_postgresql(postgresql_files) as server:
        yield server


@pytest.fixture(scope="session")
def migrated_databases(postgresql: PostgreSQL) -> MigratedDatabases:
    """Databases of that server."""
    return MigratedDatabases(postgresql, _TEMPLATE)


@pytest.fixture
def own_postgresql(postgresql_files: Path) -> Iterator[PostgreSQL]:
    """A server for one test alone, which may kill it."""
    with running_postgresql(postgresql_files) as server:
        yield server


@pytest.fixture
def warm_sluice() -> dict[str, str]:
    """The environment in which the script `sluice_server.COMMAND` runs `sluice` without importing it."""
    # First in the path is the interpreter itself: python3 may be a script, which takes longer than all the rest.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"WARM_SLUICE": sluice_server.address(), "PATH": path}


@pytest.fixture
def warm_children(warm_sluice: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `running_sandbox`, `running_sluice` and `apply` of the demo fork their processes.

    Not for tests that stop one of those: what gets the signal is the script in its place. When that is killed it dies
    some time later; `kill` of `chaos/kill_serve.py` waits for it.
    """
    for name, value in warm_sluice.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "executable", str(sluice_server.COMMAND))


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
        server: PostgreSQL = request.getfixturevalue("postgresql")
        name = f"test_{secrets.token_hex(8)}"
        server.execute(f"CREATE DATABASE {name} TEMPLATE template1")
        yield server.url(name)
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A migrated database without objects or workloads."""
    if database_kind == "sqlite":
        path = tmp_path / "sluice.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
    else:
        with request.getfixturevalue("migrated_databases").one() as url:
            yield url


@pytest.fixture
def make_database_url(
    migrated_databases: MigratedDatabases, sqlite_template: Path, tmp_path: Path
) -> Iterator[Callable[[str], Awaitable[str]]]:
    """Makes any number of migrated databases, each of the kind that is asked for."""
    with ExitStack() as stack:

        async def make(kind: str) -> str:
            if kind == "sqlite":
                path = tmp_path / f"{secrets.token_hex(8)}.db"
                shutil.copyfile(sqlite_template, path)
                return f"sqlite:///{path}"
            database = migrated_databases.one()
            url = await asyncio.to_thread(database.__enter__)
            stack.push(database)
            return url

        yield make


@pytest.fixture
async def store(database_url: str, clock: Clock) -> AsyncIterator[Store]:
    """A store on an empty database, on the test's clock."""
    async with Store.open(database_url, clock=clock, elapsed=clock) as opened:
        yield opened
