"""Migrations: upgrade, downgrade, plan and command, from a checkout and from an installed wheel."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from click.testing import CliRunner
from sqlalchemy import inspect
from store_examples import admission, admitted, finished, flavor, workload

from admission.cli.main import main
from admission.model.queues import Subscription, Topology
from admission.store.audit_log import Author
from admission.store.database.connection import Location, connect
from admission.store.database.migrations import config, migrate, plan
from admission.store.database.tables import SCHEMA_VERSION, metadata
from admission.store.errors import SchemaMismatch
from admission.store.store import Store

ROOT = Path(__file__).parent.parent.parent


async def examine(url: str, what: Callable[[Any], Any]) -> Any:
    """Return the result of a synchronous function that is called with a connection to the database."""
    database = connect(Location.parse(url))
    try:
        async with database.read() as connection:
            return await connection.run_sync(what)
    finally:
        await database.close()


@pytest.mark.costly
async def test_schema_is_migrated_up_down_and_up_again(empty_database_url: str):
    assert await migrate(empty_database_url) == (None, SCHEMA_VERSION)
    assert await migrate(empty_database_url) == (SCHEMA_VERSION, SCHEMA_VERSION)
    async with Store.open(empty_database_url) as store:
        await store.queues.create(flavor(), author=Author("test"))
    assert await migrate(empty_database_url, "base") == (SCHEMA_VERSION, None)
    assert await examine(empty_database_url, lambda c: inspect(c).get_table_names()) == ["alembic_version"]
    assert await migrate(empty_database_url, SCHEMA_VERSION) == (None, SCHEMA_VERSION)
    async with Store.open(empty_database_url) as store:
        assert await store.queues.list("ResourceFlavor") == ()


async def test_migrations_create_the_tables_of_the_code(database_url: str):
    def differences(connection: Any) -> Any:
        options = {"compare_type": True, "compare_server_default": True}
        return compare_metadata(MigrationContext.configure(connection, opts=options), metadata)

    assert await examine(database_url, differences) == []


async def test_migrations_create_the_check_constraints_and_partial_indexes_of_the_code(database_url: str):
    """Alembic's comparison covers neither check constraints nor the conditions of indexes."""

    def found(connection: Any) -> dict[str, Any]:
        look = inspect(connection)
        return {
            table: (
                {check["name"] for check in look.get_check_constraints(table)},
                {index["name"] for index in look.get_indexes(table) if _is_partial(index)},
            )
            for table in metadata.tables
        }

    wanted = {
        name: (
            {f"ck_{name}_{c.name}" if not str(c.name).startswith("ck_") else c.name for c in table.constraints
             if type(c).__name__ == "CheckConstraint"},
            {index.name for index in table.indexes if index.dialect_options["sqlite"]["where"] is not None},
        )
        for name, table in metadata.tables.items()
    }  # fmt: skip
    assert await examine(database_url, found) == wanted


def _is_partial(index: Any) -> bool:
    return any(key.endswith("_where") for key in index.get("dialect_options", {}))


def test_revisions_are_numbered_and_the_newest_is_the_schema_version():
    scripts = list(ScriptDirectory.from_config(config()).walk_revisions())
    assert [script.revision for script in reversed(scripts)] == [f"{n:04}" for n in range(1, len(scripts) + 1)]
    assert scripts[0].revision == SCHEMA_VERSION


async def test_concurrent_migrations_are_applied_once(empty_database_url: str):
    if empty_database_url.startswith("sqlite"):
        await migrate(empty_database_url, "base")
    outcomes = await asyncio.gather(*(migrate(empty_database_url) for _ in range(3)))
    assert sorted(outcomes, key=str) == [(SCHEMA_VERSION, SCHEMA_VERSION)] * 2 + [(None, SCHEMA_VERSION)]


async def test_migration_to_an_unknown_revision_is_rejected(database_url: str):
    with pytest.raises(SchemaMismatch, match="cannot migrate from schema 0022 to 7777"):
        await migrate(database_url, "7777")
    async with Store.open(database_url):
        pass


async def _ledger(url: str) -> list[Any]:
    columns = "workload_uid, pod_set, resource, flavor, cluster_queue, submitted_by, from_at, to_at, end_reason"

    def read(connection: Any) -> list[Any]:
        rows = connection.exec_driver_sql(f"SELECT {columns} FROM admissions ORDER BY id")
        return [tuple(row) for row in rows]

    found: list[Any] = await examine(url, read)
    return found


@pytest.mark.costly
@pytest.mark.parametrize(
    "earlier",
    ["0001", *(pytest.param(f"{number:04}", marks=pytest.mark.long) for number in range(2, int(SCHEMA_VERSION)))],
)
async def test_ledger_survives_downgrade_and_upgrade(database_url: str, earlier: str):
    """The benchmark `python -m tests.benchmarks migrate` does the same with a million rows."""
    async with Store.open(database_url) as store:
        epoch = await store.lead("test")
        await store.queues.create(flavor(), author=Author("test"))
        for number in range(20):
            one = workload(str(number))
            await store.commit(admitted(one, admission(), at=1.0), epoch=epoch)
            if number % 2:
                await store.commit(finished(one, at=2.0 + number), epoch=epoch)
    before = await _ledger(database_url)
    assert len(before) == 20
    await migrate(database_url, earlier)
    assert await _ledger(database_url) == before
    assert await migrate(database_url) == (earlier, SCHEMA_VERSION)
    assert await _ledger(database_url) == before
    async with Store.open(database_url) as store:
        assert len((await store.load()).workloads) == 10


async def test_downgrade_deletes_objects_of_kinds_that_the_older_schema_lacks(database_url: str):
    """While a Subscription exists, code of an older schema refuses the database, because it cannot load that kind."""

    def works_with(connection: Any) -> str:
        oldest: str = connection.exec_driver_sql("SELECT compatible_with FROM head").scalar_one()
        return oldest

    async with Store.open(database_url) as store:
        told = {"receiver": "chat", "events": ["Admitted"]}
        metadata = {"name": "mine", "namespace": "team-a"}
        await store.queues.create(flavor(), author=Author("test"))
        assert await examine(database_url, works_with) == "0001"
        subscription = Subscription.model_validate({"metadata": metadata, "spec": told})
        await store.queues.create(subscription, author=Author("test"))
        assert await examine(database_url, works_with) == "0007"
        racks = {"metadata": {"name": "dc"}, "spec": {"levels": [{"nodeLabel": "rack"}]}}
        await store.queues.create(Topology.model_validate(racks), author=Author("test"))
        assert await examine(database_url, works_with) == "0008"
    await migrate(database_url, "0007")
    assert await examine(database_url, works_with) == "0007"
    await migrate(database_url, "0006")
    assert await examine(database_url, works_with) == "0001"

    def kinds(connection: Any) -> list[str]:
        tables = ("queue_objects", "queue_object_versions")
        return [kind for table in tables for (kind,) in connection.exec_driver_sql(f"SELECT kind FROM {table}")]

    assert await examine(database_url, kinds) == ["ResourceFlavor", "ResourceFlavor"]


@pytest.mark.costly
async def test_plan_lists_migrations_without_running_them(database_url: str):
    assert await plan(database_url) == (SCHEMA_VERSION, ())
    _, back = await plan(database_url, "0001")
    assert [step.revision for step in back] == [f"{number:04}" for number in range(int(SCHEMA_VERSION), 1, -1)]
    await migrate(database_url, "0001")
    before, steps = await plan(database_url)
    assert (before, steps) == ("0001", tuple(reversed(back)))
    assert await migrate(database_url) == ("0001", SCHEMA_VERSION)
    with pytest.raises(SchemaMismatch, match="unknown schema 7777: this Sluice knows"):
        await plan(database_url, "7777")


def test_migrate_command_prints_its_plan(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/sluice.db"
    runner = CliRunner(env={"SLUICE_DATABASE_URL": url})
    runner.invoke(main, ["migrate", "--to", "0002"])
    told = runner.invoke(main, ["migrate", "--plan"]).output.splitlines()
    assert told[0] == "schema 0002; migrations to run, in one transaction:"
    assert told[1] == "  0003  Identity of the database, and of the cluster whose workloads it has"
    assert runner.invoke(main, ["migrate", "--plan", "--to", "0001"]).output.endswith("make an export first.\n")
    assert runner.invoke(main, ["migrate", "--plan", "--to", "0002"]).output == "schema 0002: nothing to do\n"


@pytest.mark.costly
def test_migrate_command_migrates_and_reports_a_missing_folder(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/sluice.db"
    runner = CliRunner()
    first = runner.invoke(main, ["migrate", "--database-url", url])
    assert (first.exit_code, first.output) == (0, f"schema base -> {SCHEMA_VERSION}\n")
    again = runner.invoke(main, ["migrate"], env={"SLUICE_DATABASE_URL": url})
    assert (again.exit_code, again.output) == (0, f"schema {SCHEMA_VERSION}: nothing to do\n")
    back = runner.invoke(main, ["migrate", "--database-url", url, "--to", "base"])
    assert (back.exit_code, back.output) == (0, f"schema {SCHEMA_VERSION} -> base\n")
    wrong = runner.invoke(main, ["migrate", "--database-url", f"sqlite:///{tmp_path}/none/sluice.db"])
    assert wrong.exit_code == 1
    assert wrong.output.startswith(f"error: the folder of the database {tmp_path}/none/sluice.db does not exist")
    assert wrong.output.count("\n") == 1


@pytest.mark.costly
def test_an_installed_wheel_migrates_without_a_checkout(tmp_path: Path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    install = ["-m", "pip", "install", "--no-deps", "--no-index", "--no-compile", "--quiet", f"--target={site}", wheel]
    subprocess.run([sys.executable, *install], check=True)
    program = (
        "import asyncio, admission\n"
        f"assert admission.__file__.startswith({str(site)!r}), admission.__file__\n"
        "from admission.store.database.migrations import migrate\n"
        f"print(asyncio.run(migrate('sqlite:///{tmp_path}/sluice.db')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(site)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.stderr, done.stdout) == ("", f"(None, '{SCHEMA_VERSION}')\n")


@pytest.mark.costly
def test_import_of_alembic_at_the_repository_root_finds_the_library():
    program = "import alembic.command; print(alembic.__file__)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    assert Path(done.stdout.strip()).name == "__init__.py"
    assert Path(done.stdout.strip()).parent != ROOT / "alembic"
