"""Child processes of a demo: started with a log file, supervised, and always terminated at the end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from admission.cli.errors import DemoError
from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping
    from pathlib import Path

_TERMINATION_SECONDS: Final = 10.0
"""Seconds that a process has to exit after SIGTERM, before it is killed."""
_EXIT_NOTICE: Final = 0.5
"""Seconds to wait for the exit status of a child after an error that its death may have caused."""
_TAIL: Final = 12
"""Number of log lines of an exited process that are shown."""


class ChildDied(DemoError):
    """A process of the demo exited. The message ends with the last lines of its output."""


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """A `sluice` command that runs as a child process."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    async def ended(self) -> None:
        """Wait for the process, which must not exit by itself, and raise ChildDied when it does."""
        code = await self.process.wait()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        raise ChildDied(f"{self.name} {how}; the last lines that it wrote:\n{self.tail()}")

    def tail(self) -> str:
        """Return the last lines of its log."""
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL:]
        return "\n".join(f"  {line}" for line in lines) or "  (nothing)"


@asynccontextmanager
async def sluice(name: str, *arguments: str, log: Path, environment: Mapping[str, str]) -> AsyncIterator[ChildProcess]:
    """Run `sluice ARGUMENTS` as a child process for the duration of the block; its output is appended to `log`."""
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "admission.cli.main",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            env={**_inherited(), **environment},
            # Ctrl-C is handled by the demo, which then terminates its children in order.
            process_group=0,
        )
    try:
        yield ChildProcess(name, process, log)
    finally:
        await end(process)


@asynccontextmanager
async def alongside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` concurrently with the block. If it fails, the block is cancelled and raises the same error."""
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            yield
            task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors


@asynccontextmanager
async def guarded(child: ChildProcess) -> AsyncIterator[None]:
    """Cancel the block and raise ChildDied if `child` exits before the block ends."""
    try:
        async with alongside(child.ended()):
            yield
    except ChildDied:
        raise
    except SluiceError:
        # The error may be a consequence of the child's death that is noticed only now; ChildDied is the better message.
        with suppress(TimeoutError):
            await asyncio.wait_for(child.ended(), _EXIT_NOTICE)
        raise


def cancel_on_signals() -> None:
    """Cancel the current task on SIGTERM, SIGHUP and Ctrl-C, so that no child process outlives it.

    Only the first signal counts: a second one, which `timeout` sends to the whole process group, must not interrupt the
    termination of the children; only a second Ctrl-C does. asyncio's own handler of Ctrl-C is not used: it cancels in
    the middle of a callback of the loop, which may then find its future cancelled and be reported as an error.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    cancelled = task
    numbers = [signal.SIGTERM, signal.SIGHUP]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        numbers.append(signal.SIGINT)

    def cancel() -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, lambda: None)
        loop.remove_signal_handler(signal.SIGINT)
        cancelled.cancel()

    for number in numbers:
        loop.add_signal_handler(number, cancel)


def free_port() -> int:
    """Return a loopback port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _inherited() -> dict[str, str]:
    """Return the environment without variables that would change the settings of a child."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("SLUICE_") and name != "KUBECONFIG"
    }


async def end(process: asyncio.subprocess.Process) -> None:
    """Terminate a process, or kill it if that takes too long, and wait for its end."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _TERMINATION_SECONDS)
    except TimeoutError:
        with suppress(ProcessLookupError):  # it may have exited just now
            process.kill()
        await process.wait()
