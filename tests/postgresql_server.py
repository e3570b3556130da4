"""PostgreSQL server for tests, from the distribution's binaries, that can be stopped, killed, frozen and restarted."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from tests.event_loop import run
from tests.ports import free_port


def _binaries() -> Path:
    """Return the folder of the server's programs: POSTGRESQL_BIN, else that in the path, else Debian's newest."""
    if named := os.environ.get("POSTGRESQL_BIN"):
        return Path(named)
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    releases = Path("/usr/lib/postgresql").glob("[0-9]*/bin/initdb")
    newest = max(releases, key=lambda initdb: int(initdb.parts[-3]), default=Path("initdb"))
    return newest.parent


_BINARIES = _binaries()


class NoPostgreSQL(Exception):
    """The server cannot be run on this machine; the message says why."""


@dataclass(frozen=True)
class PostgreSQL:
    """A PostgreSQL server with its own data folder and port."""

    folder: Path
    port: int
    password: str

    def url(self, database: str) -> str:
        """Return a database's URL as a user would write it."""
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/{database}"

    def execute(self, *statements: str) -> None:
        """Run statements as the superuser, each in its own transaction."""

        async def execute() -> None:
            connection = await asyncpg.connect(self.url("postgres"))
            try:
                for statement in statements:
                    await connection.execute(statement)
            finally:
                await connection.close()

        run(execute())

    def start(self) -> None:
        """Start the server on its data folder; returns when it accepts connections."""
        settings = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder} -c fsync=off"
        self._control(f"--log={self.folder / 'log'}", f"--options={settings}", "start")

    def stop(self) -> None:
        """Shut the server down cleanly: the next start needs no recovery."""
        self._control("--mode=fast", "stop")

    def kill(self) -> None:
        """Stop the server immediately, without a checkpoint, as a crash does."""
        self._control("--mode=immediate", "stop")

    def restart_as_standby(self) -> None:
        """Restart the server as a standby, which only answers reads, until `promote`."""
        self.stop()
        standby = self.folder / "data" / "standby.signal"
        standby.touch()
        if _user() is not None:
            shutil.chown(standby, _user())
        self.start()

    def promote(self) -> None:
        """Make a standby a primary; returns when it accepts writes."""
        self._control("promote")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Suspend all its processes during the block: it keeps and accepts connections, but answers none."""
        postmaster = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        tasks = Path(f"/proc/{postmaster}/task/{postmaster}/children")
        os.kill(postmaster, signal.SIGSTOP)  # first, so that it starts no further processes
        processes = [postmaster, *map(int, tasks.read_text().split())]
        for process in processes[1:]:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)

    def _control(self, *arguments: str) -> None:
        control = [_BINARIES / "pg_ctl", f"--pgdata={self.folder / 'data'}", "--wait", "--silent"]
        _run([*control, *arguments], folder=self.folder)


@contextmanager
def running_postgresql(copied: Path | None = None) -> Iterator[PostgreSQL]:
    """Run a server during the block, and delete it and its data afterwards. Raises NoPostgreSQL.

    `copied`: folder of a stopped server whose data it starts with; without it the server is initialised, which takes
    more than a second of processor time.
    """
    if not (_BINARIES / "initdb").exists():
        hint = "install it (Debian: apt-get install postgresql) or name the folder of initdb in POSTGRESQL_BIN"
        raise NoPostgreSQL(f"there is no PostgreSQL server; {hint}")
    folder = Path(tempfile.mkdtemp(prefix="sluice-postgresql-"))
    try:
        if copied is None:
            _make(folder)
        else:
            copy_files(copied, folder)
        server = PostgreSQL(folder, port=free_port(), password=(folder / "password").read_text())
        server.start()
        try:
            yield server
        finally:
            if (folder / "data" / "postmaster.pid").exists():
                server.kill()
    finally:
        shutil.rmtree(folder)


def copy_files(stopped: Path, folder: Path) -> None:
    """Copy the folder of a stopped server, with owners and permissions."""
    subprocess.run(["cp", "--archive", "--no-target-directory", stopped, folder], check=True)


def _make(folder: Path) -> None:
    (folder / "password").write_text(secrets.token_hex(8))
    if _user() is not None:
        shutil.chown(folder, _user())
        shutil.chown(folder / "password", _user())
    make = [_BINARIES / "initdb", "--no-sync", "--username=postgres", f"--pgdata={folder / 'data'}"]
    make += ["--auth=scram-sha-256", f"--pwfile={folder / 'password'}", "--encoding=UTF8", "--locale=C"]
    _run(make, folder=folder)


def _user() -> str | None:
    """Return the user to run as: PostgreSQL refuses to run as root. None: the current one."""
    return "postgres" if os.geteuid() == 0 else None


def _run(arguments: list[str | Path], *, folder: Path) -> None:
    # A file, not a pipe: the server inherits it, so that reading a pipe would not end before the server does.
    with (folder / "output").open("ab") as output:
        done = subprocess.run(arguments, cwd=folder, user=_user(), stdout=output, stderr=output, check=False)
    if done.returncode:
        raise NoPostgreSQL(f"{arguments[0]} failed:\n{(folder / 'output').read_text()}")
