"""The commands of docs/disaster-recovery.md, run in sequence after the loss of a database or a cluster."""

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
    """An admin who follows the page, in a folder with the files that it names (`/etc/sluice/database-url`, ...)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.printed: dict[str, str] = {}
        """Output of the last call of each command, by its name."""
        (folder / "queues.yaml").write_text(QUEUES)
        (folder / "sluice.yaml").write_text("logLevel: info\n")

    def use_database(self, database_url: str) -> None:
        """Write the URL of another database to the file that the page names."""
        self.url = database_url
        (self.folder / "database-url").write_text(database_url)

    async def run(self, words: list[str], *, replica: Replica | None = None) -> None:
        """Run a command of the page, other than those that start or stop `sluice serve`."""
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

    async def error_of_refused_start(self) -> str:
        """The error of a start of `sluice serve` that ends at once."""
        async with serving(self.folder, self.url, f"--config={self.folder / 'sluice.yaml'}") as replica:
            await replica.process.wait()
        assert replica.process.returncode == 1
        return next(line for line in replica.log.decode().splitlines() if line.startswith("error: "))

    @asynccontextmanager
    async def serve(self, *more: str) -> AsyncIterator[Replica]:
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
    """Generation of a Job. 1: created, 2: started, and two more for each time that it was stopped and started again."""
    return int(sandbox.local("admin").get("jobs", "default", name)["metadata"]["generation"])


@pytest.fixture
def admin(tmp_path: Path) -> Admin:
    return Admin(tmp_path)


@pytest.mark.costly
@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_database_is_restored_from_a_backup(kind: str, make_database_url: Make, admin: Admin):
    admin.use_database(await make_database_url(kind))
    async with cluster(admin.folder) as sandbox:
        async with admin.serve() as replica:
            await admin.run(["sluice", "apply", "-f", "queues.yaml"], replica=replica)
            await submit(sandbox, "of-yesterday")
            await until_job(sandbox, "of-yesterday", runs)
            for words in commands("Back up"):
                await admin.run(words, replica=None if "--database-url-file" in words else replica)
            await submit(sandbox, "of-today")
            await until_job(sandbox, "of-today", runs)
        admin.use_database(await make_database_url(kind))  # the old one is lost
        stop, *restore, start = commands("With a backup")
        assert (stop[:2], start[:2]) == (["kubectl", "scale"], ["kubectl", "scale"])
        for words in restore:
            await admin.run(words)
        assert "of-today" in admin.printed["audit"]
        sentence = await admin.error_of_refused_start()
        assert "stop 1 running Job (default/of-today), which would queue again" in sentence
        assert [generation(sandbox, name) for name in ("of-yesterday", "of-today")] == [2, 2], "nothing was stopped"
        async with admin.serve("--adopt"):
            await until_job(sandbox, "of-today", lambda obj: runs(obj) and obj["metadata"]["generation"] >= 4)
            assert generation(sandbox, "of-yesterday") == 2, "what is on record runs on"


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_database_lost_without_a_backup_is_recreated(kind: str, make_database_url: Make, admin: Admin):
    admin.use_database(await make_database_url(kind))
    async with cluster(admin.folder) as sandbox:
        async with admin.serve() as replica:
            await admin.run(["sluice", "apply", "-f", "queues.yaml"], replica=replica)
            await submit(sandbox, "runs")
            await until_job(sandbox, "runs", runs)
        admin.use_database(await make_database_url(kind))
        migrate, serve, apply = commands("Without a backup")
        await admin.run(migrate)
        assert "--adopt" in serve
        assert "stop 1 running Job (default/runs)" in await admin.error_of_refused_start()
        async with admin.serve("--adopt") as replica:
            await until_job(sandbox, "runs", lambda obj: obj["spec"]["suspend"])
            await admin.run(apply, replica=replica)
            await until_job(sandbox, "runs", runs)


@pytest.mark.costly
@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_lost_cluster_is_replaced_by_a_new_cluster(kind: str, make_database_url: Make, admin: Admin):
    admin.use_database(await make_database_url(kind))
    async with cluster(admin.folder) as sandbox, admin.serve() as replica:
        await admin.run(["sluice", "apply", "-f", "queues.yaml"], replica=replica)
        await submit(sandbox, "gone")
        await until_job(sandbox, "gone", runs)
    async with cluster(admin.folder) as another:
        ((*_, adopt, _, _),) = commands("Another cluster")
        assert adopt == "--adopt"
        assert "finish the records of 1 Job (default/gone)" in await admin.error_of_refused_start()
        async with admin.serve("--adopt") as replica:
            await submit(another, "again")
            await until_job(another, "again", runs)
            # Its end is recorded as soon as the new cluster has confirmed that it has no pods of this Job.
            while not admin.printed.get("history", "").rstrip().endswith("Deleted"):
                await admin.run(["sluice", "history", "gone", "-n", "default"], replica=replica)
