"""docs/disaster-recovery.md played through: its commands, one after the other, on a cluster that has lost something."""

from __future__ import annotations

import re
import shlex
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from serve_processes import NODE, QUEUES, Replica, job, serving, sluice, until_job

from admission.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Make = Callable[[str], Awaitable[str]]

PAGE = Path(__file__).parents[2] / "docs" / "disaster-recovery.md"


def commands(section: str) -> list[list[str]]:
    """The words of each command in a section of the page."""
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    return [shlex.split(line) for line in re.findall(r"^    (\S.*)$", sections[section], re.MULTILINE)]


class Admin:
    """Who follows the page in a folder that has what the page names: `/etc/sluice/database-url` and so on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.printed: dict[str, str] = {}
        """What each command printed, by its name."""
        (folder / "queues.yaml").write_text(QUEUES)
        (folder / "sluice.yaml").write_text("logLevel: info\n")

    def has(self, database_url: str) -> None:
        """The database is another one now."""
        self.url = database_url
        (self.folder / "database-url").write_text(database_url)

    async def does(self, words: list[str], *, replica: Replica | None = None) -> None:
        """One command but those that start or stop `sluice serve`."""
        known = {
            "/etc/sluice/database-url": str(self.folder / "database-url"),
            "~/.kube/config": str(self.folder / "kubeconfig"),
        }
        files = {name: str(self.folder / name) for name in ("sluice.jsonl.gz", "queues.yaml", "sluice.yaml")}
        replaced = [(known | files).get(word, word) for word in words]
        output = ">" in replaced and replaced.index(">")
        server = {"SLUICE_SERVER": replica.url} if replica else {"SLUICE_DATABASE_URL": self.url}
        process = await sluice(*(replaced[1:output] if output else replaced[1:]), **server)
        printed, errors = await process.communicate()
        if output:
            (self.folder / replaced[output + 1]).write_bytes(printed)
        self.printed[words[1]] = (printed + errors).decode()
        assert process.returncode == 0 or words[1] == "audit", self.printed

    async def refused(self) -> str:
        """What a start says that ends at once."""
        async with serving(self.folder, self.url, f"--config={self.folder / 'sluice.yaml'}") as replica:
            await replica.process.wait()
        assert replica.process.returncode == 1
        return next(line for line in replica.log.decode().splitlines() if line.startswith("error: "))

    @asynccontextmanager
    async def serves(self, *more: str) -> AsyncIterator[Replica]:
        async with serving(self.folder, self.url, f"--config={self.folder / 'sluice.yaml'}", *more) as replica:
            await replica.until("leading")
            yield replica


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox(speed=60) as sandbox:
        (folder / "kubeconfig").unlink(missing_ok=True)
        sandbox.write_kubeconfig(folder / "kubeconfig", "sluice")
        await sandbox.local("admin").create("nodes", "", NODE)
        yield sandbox


async def submit(sandbox: Sandbox, name: str) -> None:
    body = job(name, seconds=10**6)
    body["spec"]["suspend"] = True
    await sandbox.local("alice").create("jobs", "default", body)


def runs(obj: Any) -> bool:
    return not obj["spec"]["suspend"] and obj.get("status", {}).get("active") == 1


def generation(sandbox: Sandbox, name: str) -> int:
    """1: created, 2: started, and two more for each time that it was stopped and started again."""
    return int(sandbox.local("admin").get("jobs", "default", name)["metadata"]["generation"])


@pytest.fixture
def admin(tmp_path: Path) -> Admin:
    return Admin(tmp_path)


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_database_is_restored_from_yesterday(kind: str, make_database_url: Make, admin: Admin):
    admin.has(await make_database_url(kind))
    async with cluster(admin.folder) as sandbox:
        async with admin.serves() as replica:
            await admin.does(["sluice", "apply", "-f", "queues.yaml"], replica=replica)
            await submit(sandbox, "of-yesterday")
            await until_job(sandbox, "of-yesterday", runs)
            for words in commands("Back up"):
                await admin.does(words, replica=None if "--database-url-file" in words else replica)
            await submit(sandbox, "of-today")
            await until_job(sandbox, "of-today", runs)
        admin.has(await make_database_url(kind))  # the old one is lost
        stop, *restore, start = commands("With a backup")
        assert (stop[:2], start[:2]) == (["kubectl", "scale"], ["kubectl", "scale"])
        for words in restore:
            await admin.does(words)
        assert "of-today" in admin.printed["audit"]
        sentence = await admin.refused()
        assert "stop 1 running Job (default/of-today), which would queue again" in sentence
        assert [generation(sandbox, name) for name in ("of-yesterday", "of-today")] == [2, 2], "nothing was stopped"
        async with admin.serves("--adopt"):
            await until_job(sandbox, "of-today", lambda obj: runs(obj) and obj["metadata"]["generation"] >= 4)
            assert generation(sandbox, "of-yesterday") == 2, "what is on record runs on"


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_database_is_lost_without_a_backup(kind: str, make_database_url: Make, admin: Admin):
    admin.has(await make_database_url(kind))
    async with cluster(admin.folder) as sandbox:
        async with admin.serves() as replica:
            await admin.does(["sluice", "apply", "-f", "queues.yaml"], replica=replica)
            await submit(sandbox, "runs")
            await until_job(sandbox, "runs", runs)
        admin.has(await make_database_url(kind))
        migrate, serve, apply = commands("Without a backup")
        await admin.does(migrate)
        assert "--adopt" in serve
        assert "stop 1 running Job (default/runs)" in await admin.refused()
        async with admin.serves("--adopt") as replica:
            await until_job(sandbox, "runs", lambda obj: obj["spec"]["suspend"])
            await admin.does(apply, replica=replica)
            await until_job(sandbox, "runs", runs)


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_cluster_is_lost(kind: str, make_database_url: Make, admin: Admin):
    admin.has(await make_database_url(kind))
    async with cluster(admin.folder) as sandbox, admin.serves() as replica:
        await admin.does(["sluice", "apply", "-f", "queues.yaml"], replica=replica)
        await submit(sandbox, "gone")
        await until_job(sandbox, "gone", runs)
    async with cluster(admin.folder) as another:
        ((*_, adopt, _, _),) = commands("Another cluster")
        assert adopt == "--adopt"
        assert "finish the records of 1 Job (default/gone)" in await admin.refused()
        async with admin.serves("--adopt") as replica:
            await submit(another, "again")
            await until_job(another, "again", runs)
            # Its end is on record as soon as the new cluster has said that it has no pods of it.
            while not admin.printed.get("history", "").rstrip().endswith("Deleted"):
                await admin.does(["sluice", "history", "gone", "-n", "default"], replica=replica)
