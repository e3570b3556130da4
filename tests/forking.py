"""`sluice` processes forked from one that has imported it already, because the import takes longer than most tests.

Each is a separate process with the arguments, environment and pipes that a shell would give it. Processes that it
starts itself, as `sluice serve` does for its webhooks, are forked too.
`test_cli_main.py`, `test_demo_run.py` and others start it with the interpreter, as users do.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests import sluice_server


class Forked:
    """A running `sluice` process, with the part of `asyncio.subprocess.Process`'s interface that tests use.

    Both streams are pipes; they are empty if the process writes to a file.
    """

    def __init__(
        self, connection: socket.socket, pid: int, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader
    ) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._connection = connection
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(connection, self._end)

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

        `files`: its limit of open files. `forks`: whether the processes that it starts are forked too; False for tests
        that kill or inspect them. `log`: file to which both streams are appended. `clock`: file that sets its clock
        (`tests/chaos/stepped.py`).
        """
        with ExitStack() as stack:
            (reads_output, output), (reads_errors, errors) = os.pipe(), os.pipe()
            streams = [os.open(os.devnull, os.O_RDONLY), output, errors]
            for stream in streams:
                stack.callback(os.close, stream)
            if log is not None:
                written = stack.enter_context(log.open("ab"))
                streams = [streams[0], written.fileno(), written.fileno()]
            start = partial(sluice_server.start, arguments, streams, environment, forks=forks, files=files, clock=clock)
            connection, pid = await asyncio.to_thread(start)  # the first call waits for the server's imports
        return cls(connection, pid, await _reader(reads_output), await _reader(reads_errors))

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._connection)
        with self._connection:
            self.returncode = sluice_server.exit_code(self._connection)
        self._ended.set()

    async def wait(self) -> int:
        """Wait for the end of the process and return its exit code; negative: the signal that ended it."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        """Wait for the end of the process and return its remaining output (stdout, stderr)."""
        output, errors, _ = await asyncio.gather(self.stdout.read(), self.stderr.read(), self.wait())
        return output, errors

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb", 0))
    return reader
