"""File permissions: other users of the machine can read neither a SQLite database nor an export of it."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from store_examples import flavor

from admission.cli.main import main
from admission.model.errors import SluiceError
from admission.store.audit_log import Author
from admission.store.database.migrations import ensure_ready, migrate
from admission.store.store import Store


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    return {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in folder.iterdir()}


async def use(url: str) -> None:
    async with Store.open(url) as store:
        await store.lead("test")
        await store.queues.create(flavor(), author=Author("test"))


async def test_files_of_a_new_database_are_private_to_their_owner(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    await ensure_ready(url)
    async with Store.open(url) as store:
        await store.lead("test")
        await store.queues.create(flavor(), author=Author("test"))
        assert modes(tmp_path) == dict.fromkeys(
            ("sluice.db", "sluice.db-wal", "sluice.db-shm", "sluice.db.lock"), "0o600"
        )


@pytest.mark.parametrize(("before", "after"), [(0o644, "0o600"), (0o666, "0o600"), (0o640, "0o640"), (0o600, "0o600")])
async def test_opening_removes_access_of_other_users_from_an_existing_database(tmp_path: Path, before: int, after: str):
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    await migrate(url)
    await use(url)
    for name in ("sluice.db", "sluice.db.lock"):
        (tmp_path / name).chmod(before)
    async with Store.open(url):
        assert modes(tmp_path)["sluice.db"] == after
        assert modes(tmp_path)["sluice.db.lock"] == after


async def test_opening_removes_access_of_other_users_from_existing_wal_files(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    await migrate(url)
    async with Store.open(url) as first:
        await first.queues.create(flavor(), author=Author("test"))
        for name in ("sluice.db", "sluice.db-wal", "sluice.db-shm"):
            (tmp_path / name).chmod(0o644)
        async with Store.open(url):
            assert set(modes(tmp_path).values()) == {"0o600"}


@pytest.mark.parametrize("kind", ["folder", "text", "other database"])
async def test_path_that_is_not_a_sluice_database_keeps_its_mode(tmp_path: Path, kind: str):
    path = tmp_path / "mistyped"
    if kind == "folder":
        path.mkdir()
    elif kind == "text":
        path.write_text("127.0.0.1 localhost\n" * 100)
    else:
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE anybodys (x)")
    path.chmod(0o755)
    with pytest.raises(SluiceError):
        async with Store.open(f"sqlite:///{path}"):
            pass
    assert modes(tmp_path)["mistyped"] == "0o755"


def test_export_over_an_existing_file_is_private_to_its_owner(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "dump").touch(0o644)
    assert CliRunner().invoke(main, ["migrate", "--database-url", url]).exit_code == 0
    done = CliRunner().invoke(main, ["export", str(tmp_path / "out" / "dump"), "--database-url", url])
    assert done.exit_code == 0, done.output
    assert modes(tmp_path / "out") == {"dump": "0o600"}
