"""`sluice` as processes forked from one that has imported it already: importing takes longer than most tests.

Each is a process of its own, with the arguments, environment and pipes that it would have from a shell. The processes
that it starts itself, as `sluice serve` does for its webhooks, are forked, too.
`test_cli_main.py`, `test_demo_run.py` and others start it by the interpreter, as users do.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import secrets
import signal
import socket
import sys
import time
from functools import cache
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import TYPE_CHECKING, Any

from admission.cli.main import _COMMANDS, main
from tests import sluice_server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.context import ForkServerProcess

_forking = multiprocessing.get_context("forkserver")
_preloaded = [
    "tests.chaos.stepped_time",  # before all that takes the time
    _COMMANDS["serve"].module,
    # What it imports only when it needs it.
    "admission.cli.serve.forecaster",
    "admission.client",
    "aiosqlite",
    "alembic.config",
    "asyncpg",
    "encodings.idna",
    "kubernetes_asyncio.client",
    "kubernetes_asyncio.config",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "webhooks.gate",
]
_forking.set_forkserver_preload(_preloaded)


class Forked:
    """A running `sluice`, with what the tests use of `asyncio.subprocess.Process`.

    Both streams are pipes, or empty where the process writes to a file.
    """

    def __init__(self, process: ForkServerProcess, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader) -> None:
        assert process.pid is not None
        self.pid = process.pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._process = process
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(process.sentinel, self._end)

    @classmethod
    async def start(
        cls,
        *arguments: str,
        environment: Mapping[str, str],
        files: int | None = None,
        forks: bool = True,
        log: Path | None = None,
        clock: Path | None = None,
    ) -> Forked:
        """Start `sluice` with these arguments.

        `files`: how many it may have open, None: as many as this process. `forks`: the processes that it starts are
        forked; without it they are the interpreter's, for tests that kill them or look at them. `log`: the file to
        which both streams are appended. `clock`: the file that sets its clock (`tests/chaos/stepped.py`).
        """
        (reads_output, output), (reads_errors, errors) = os.pipe(), os.pipe()

        def start() -> ForkServerProcess:
            # What is sent to the process is duplicated while it is started, and only then.
            sent = _Sent(output), _Sent(errors)
            warm = _server() if forks else None
            given = arguments, dict(environment), files, *sent, warm, log, clock
            process = _forking.Process(target=_run, args=given, daemon=True)
            process.start()
            return process

        try:
            process = await asyncio.to_thread(start)  # the first one waits for the imports
        finally:
            os.close(output)
            os.close(errors)
        return cls(process, await _reader(reads_output), await _reader(reads_errors))

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        self.returncode = self._process.exitcode
        self._process.close()
        self._ended.set()

    async def wait(self) -> int:
        """The exit code, as soon as it has ended; negative: the signal that ended it."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        """All that it still prints, until it ends."""
        output, errors, _ = await asyncio.gather(self.stdout.read(), self.stderr.read(), self.wait())
        return output, errors

    def send_signal(self, number: int) -> None:
        """Nothing is done to one that has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Sent:
    """A file descriptor that another process gets."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Any, ...]:
        return DupFd(self._descriptor).detach, ()


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb", 0))
    return reader


def _run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    files: int | None,
    output: int,
    errors: int,
    warm: str | None,
    log: Path | None,
    clock: Path | None,
) -> None:
    """What the new process does."""
    for given, usual in ((output, 1), (errors, 2)):
        os.dup2(given, usual)
        os.close(given)
    if log is not None:
        with log.open("ab") as written:
            os.dup2(written.fileno(), 1)
            os.dup2(written.fileno(), 2)
    # The streams of whoever forked may be files, which can seek.
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    absent = [name for name in _preloaded if name not in sys.modules]
    assert not absent, f"{absent} could not be imported once for all, of which the server of forks says nothing"
    if clock is not None:
        stepped: Any = time.time
        stepped.follow(clock)
    if warm is not None:
        os.environ["WARM_SLUICE"] = warm
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where the script finds python3
        sys.executable = str(sluice_server.COMMAND)
    sys.argv = ["sluice", *arguments]
    main()


@cache
def _server() -> str:
    """Where the server listens that forks what `sluice` starts; it ends with this process."""
    name = f"sluice-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{name}")
        listening.listen(64)
        process = _forking.Process(target=_serve, args=(_Sent(listening.fileno()),), daemon=True)
        process.start()
    return f"@{name}"


def _serve(listening: int) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    with socket.socket(fileno=listening) as waiting:
        sluice_server.serve(waiting, unused=parent.sentinel)
