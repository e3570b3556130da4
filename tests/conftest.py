"""Shared pytest configuration: databases (SQLite and PostgreSQL), time limits, order of tests, leak checks."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import inspect
import logging
import os
import resource
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import ExitStack
from functools import wraps
from pathlib import Path

import hypothesis
import pytest
import strict_tls  # noqa: F401  # before modules that make contexts
from aiohttp import web_app
from postgresql_databases import MigratedDatabases
from postgresql_server import NoPostgreSQL, PostgreSQL, copy_files, running_postgresql

from admission.store.database.migrations import migrate
from admission.store.store import Store
from tests import compiled_statements, sandbox_errors, sluice_server
from tests.event_loop import EventLoop, run
from tests.virtual_time import VirtualTimeLoop

# With PYTHONDONTWRITEBYTECODE, which many containers set, each run would compile all tests and modules again, which
# takes each worker 15 seconds; and each `sluice` that a test starts would compile its modules.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What a machine or a user sets otherwise: reports are of months in a time zone, and modes of files depend on the mask.
os.environ["TZ"] = "UTC"
time.tzset()
os.umask(0o022)

compiled_statements.share()

_IN_CI = hypothesis.settings().derandomize  # Hypothesis' default there: the same examples in each run
# Deadline and health check measure wall time, which other processes of a busy machine lengthen.
hypothesis.settings.register_profile(
    "busy",
    parent=hypothesis.settings(),
    deadline=None,
    derandomize=False,  # so that tests which set it are known by it
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("busy")

_TEMPLATE = "sluice_template"
_OF_A_MODULE = 2
"""So many costly tests of each module run without `ALL=1`: the first ones."""
_IN_VIRTUAL_TIME = "virtual_time"
_OF_PROPERTY = "_hypothesis_internal_use_settings"
"""Attribute in which Hypothesis stores the settings of a test function."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loop factory of a test and its fixtures."""
    return {"loop": VirtualTimeLoop if item.get_closest_marker(_IN_VIRTUAL_TIME) else EventLoop}


class Clock:
    """Manual clock in seconds since the epoch, which changes by `advance` only."""

    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.hookimpl(trylast=True)  # after Hypothesis, which warns if it is used while plugins are loaded
def pytest_sessionstart(session: pytest.Session) -> None:
    """Avoid repeated work in the workers of a new checkout.

    Hypothesis computes the characters of UTF-8 with the first text that it draws, in 1.3 s of processor time. Here the
    main process does it, for all workers, while they collect tests.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        from tests import divided_work

        session.config.pluginmanager.register(divided_work)
    elif session.config.getoption("numprocesses", default=None):
        from hypothesis import strategies

        threading.Thread(target=strategies.text().validate).start()


_COSTLY: dict[Path, set[str]] = {}
"""The costly tests of each module that run without `ALL=1`."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave most of the costly tests to `ALL=1`, so that CI takes minutes.

    The first two of each module run, with their first parameters; of both databases PostgreSQL, which has concurrent
    writers.
    """
    is_costly = item.get_closest_marker("costly") and not item.get_closest_marker("long")
    if not isinstance(item, pytest.Function) or not is_costly:
        return
    chosen = _COSTLY.setdefault(item.path, set())
    test = item.nodeid.partition("[")[0]
    on_sqlite = hasattr(item, "callspec") and item.callspec.params.get("database_kind") == "sqlite"
    if on_sqlite or test in chosen or len(chosen) == _OF_A_MODULE:
        item.add_marker("long")
    else:
        chosen.add(test)


@pytest.hookimpl(trylast=True)  # after pytest has grouped tests that share a fixture
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Set a timeout inside of each test's event loop; in parallel runs reduce examples and order the tests.

    The exception of pytest-timeout alone is lost if it is raised in a callback of the loop. In virtual time such a
    timeout would not measure how long a test takes.
    """
    for item in items:
        real_time = item.get_closest_marker(_IN_VIRTUAL_TIME) is None
        if real_time and isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            marker = item.get_closest_marker("timeout")
            limit = marker.args[0] if marker else float(config.getini("timeout"))
            # Less than pytest-timeout's limit, which includes the report of a failure: that is slow on a busy machine.
            item.obj = _with_timeout(item.obj, 0.8 * limit)
    if (workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))) > 1:
        _reduce_examples(items)
        items[:] = _order_for_workers(items, workers=workers)


def _reduce_examples(items: list[pytest.Item]) -> None:
    """Reduce the examples of Hypothesis tests to a third in parallel runs. Outside of CI, they differ in each run."""
    seen: set[tuple[int, str]] = set()
    for item in items:
        # Settings of state machines, and of test functions.
        for holder, name in ((getattr(item, "cls", None), "settings"), (getattr(item, "obj", None), _OF_PROPERTY)):
            known = getattr(holder, name, None)
            # Derandomized tests are left as they are: their examples are few, or were chosen.
            if isinstance(known, hypothesis.settings) and not known.derandomize and (id(holder), name) not in seen:
                seen.add((id(holder), name))
                reduced = min(known.max_examples, max(10, known.max_examples // 3))
                setattr(holder, name, hypothesis.settings(known, max_examples=reduced, derandomize=_IN_CI))


def _order_for_workers(items: list[pytest.Item], *, workers: int) -> list[pytest.Item]:
    """Order tests so that two workers start with those marked `long`, and none runs one alone at the end.

    Each worker starts with an equal part of the list, and takes tests of other parts when it has finished its own. Only
    two, because many long tests start several processes, and on a busy machine they would exceed their time limits.
    """
    long = [item for item in items if item.get_closest_marker("long")]
    others = _interleave_folders([item for item in items if not item.get_closest_marker("long")])
    starts = [long[::2], long[1::2]]
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        part = (len(items) - len(ordered)) // (workers - worker)
        start = starts[worker] if worker < len(starts) else []
        rest = max(0, part - len(start))
        ordered += start + others[:rest]
        del others[:rest]
    return ordered + others


def _interleave_folders(items: list[pytest.Item]) -> list[pytest.Item]:
    """Interleave the test files of all folders, each folder spread evenly over the list.

    Tests of some folders compute, those of others mostly wait for processes. If all workers ran tests of one of the
    latter at the same time, processors would be idle.
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
    """Exclude modules and tests, which live until the end, from garbage collections, which would visit all of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()  # including any garbage: a collection would take half a second
        gc.set_threshold(20_000, 10, 50)  # most objects of a sandbox or a store live as long as their test
        gc.enable()


def _with_timeout(test: Callable[..., Awaitable[None]], seconds: float) -> Callable[..., Awaitable[None]]:
    @wraps(test)
    async def bounded(*args: object, **kwargs: object) -> None:
        async with asyncio.timeout(seconds):
            await test(*args, **kwargs)

    return bounded


def pytest_runtest_teardown() -> None:
    """Free the applications of the test, with their stores: aiohttp caches the handlers of the latest 1024 routes."""
    web_app._cached_build_middleware.cache_clear()


@pytest.fixture(autouse=True)
def process_state() -> Iterator[None]:
    """Fail a test that leaves global state of the process changed, which would affect later tests of the worker."""
    before = _process_state()
    yield
    assert _process_state() == before, "the test leaves the process changed"


@pytest.fixture(autouse=True)
def controller_errors() -> Iterator[list[str]]:
    """Fail a test in which a controller of a sandbox logs an exception: a defect, although the controller goes on.

    A test that expects them clears the list.
    """
    with sandbox_errors.recorded() as errors:
        yield errors
    assert errors == [], "a controller of the sandbox has failed"


def _process_state() -> dict[str, object]:
    root = logging.getLogger()
    # pytest's own handlers differ between the phases of a test.
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


@pytest.fixture(scope="module")
def shared_clock() -> Clock:
    """Clock of what the tests of a module share."""
    return Clock()


@pytest.fixture(scope="session")
def postgresql_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a stopped server with a migrated template database, created once for all workers of a run."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder, finished = shared / "postgresql", shared / "postgresql-finished"
    with (shared / "postgresql-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            _make_postgresql(folder)
            finished.touch()
    return folder


def _make_postgresql(folder: Path) -> None:
    try:
        with running_postgresql() as server:
            server.execute(f"CREATE DATABASE {_TEMPLATE}")
            run(migrate(server.url(_TEMPLATE)))
            server.stop()
            copy_files(server.folder, folder)
    except NoPostgreSQL as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def postgresql(postgresql_files: Path) -> Iterator[PostgreSQL]:
    """PostgreSQL server with a migrated template database; one for each worker's session."""
    with running_postgresql(postgresql_files) as server:
        yield server


@pytest.fixture(scope="session")
def migrated_databases(postgresql: PostgreSQL) -> MigratedDatabases:
    """Migrated databases of that server, which are reused."""
    return MigratedDatabases(postgresql, _TEMPLATE)


@pytest.fixture
def own_postgresql(postgresql_files: Path) -> Iterator[PostgreSQL]:
    """PostgreSQL server for a single test, which may kill it."""
    with running_postgresql(postgresql_files) as server:
        yield server


@pytest.fixture
def warm_sluice() -> dict[str, str]:
    """Environment in which the script `sluice_server.COMMAND` runs `sluice` without importing it again."""
    # The interpreter's folder comes first: another python3 may be a wrapper script, which takes longer than the rest.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"WARM_SLUICE": sluice_server.address(), "PATH": path}


@pytest.fixture
def warm_children(warm_sluice: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `running_sandbox`, `running_sluice` and `apply` of the demo fork their processes from the warm server.

    Not for tests that stop such a process: the signal goes to the script that stands in for it. After the script is
    killed, the process itself ends some time later; `kill` of `chaos/kill_serve.py` waits for that.
    """
    for name, value in warm_sluice.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "executable", str(sluice_server.COMMAND))


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Migrated SQLite file, from which the databases of tests are copied."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    asyncio.run(migrate(f"sqlite:///{path}"))
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_kind(request: pytest.FixtureRequest) -> str:
    """Kind of the database; tests that use it run once for each."""
    kind: str = request.param
    return kind


@pytest.fixture
def empty_database_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a database without tables; for SQLite the file does not exist yet."""
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
    """URL of a migrated database without objects or workloads."""
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
    """Factory of migrated databases by kind (`sqlite` or `postgresql`); returns their URLs."""
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
    """Store on an empty database, with the test's clock."""
    async with Store.open(database_url, clock=clock, elapsed=clock) as opened:
        yield opened
