"""The processes that a demo is made of: started with a log file, watched, and ended whatever happens."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from admission.cli.demo.errors import ChildDied
from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping
    from pathlib import Path

_PATIENCE: Final = 10.0
"""Seconds that a process has to end by itself."""
_DEATH_NOTICE: Final = 0.5
"""Seconds within which the end of a process is noticed here."""
_TAIL: Final = 12
"""Lines of a dead process's log that are shown."""


@dataclass(frozen=True, slots=True)
class Child:
    """A `sluice` command in a process of its own."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    async def ended(self) -> None:
        """Wait for its end, and raise ChildDied: for processes that must not end by themselves."""
        code = await self.process.wait()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        raise ChildDied(f"{self.name} {how}; the last lines that it wrote:\n{self.tail()}")

    def tail(self) -> str:
        """The last lines of its log."""
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL:]
        return "\n".join(f"  {line}" for line in lines) or "  (nothing)"


@asynccontextmanager
async def sluice(name: str, *arguments: str, log: Path, environment: Mapping[str, str]) -> AsyncIterator[Child]:
    """`sluice ARGUMENTS` as a child, ended on the way out. What it writes is appended to `log`."""
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
            # Ctrl-C is for the demo, which then ends its children in order.
            process_group=0,
        )
    try:
        yield Child(name, process, log)
    finally:
        await _end(process)


@asynccontextmanager
async def alongside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """A block beside which `work` goes on. If that fails, the block is cancelled and raises the same error."""
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            yield
            task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors


@asynccontextmanager
async def guarded(child: Child) -> AsyncIterator[None]:
    """A block that is cancelled, and raises ChildDied, if `child` ends before the block does."""
    try:
        async with alongside(child.ended()):
            yield
    except ChildDied:
        raise
    except SluiceError:
        # Perhaps the block only felt that the child had died, before anyone saw it: that is the better message.
        with suppress(TimeoutError):
            await asyncio.wait_for(child.ended(), _DEATH_NOTICE)
        raise


def cancel_on_signals() -> None:
    """Let SIGTERM, SIGHUP and Ctrl-C end the current task, so that no child outlives it.

    Once: a second signal, as `timeout` sends it to the whole process group, must not cut short how the children are
    ended; only a second Ctrl-C does. asyncio's own handler of Ctrl-C cancels in the middle of whatever runs, so that a
    callback of the loop may find its future cancelled, and is reported as a fault.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    ends = task
    numbers = [signal.SIGTERM, signal.SIGHUP]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        numbers.append(signal.SIGINT)

    def cancel() -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, lambda: None)
        loop.remove_signal_handler(signal.SIGINT)
        ends.cancel()

    for number in numbers:
        loop.add_signal_handler(number, cancel)


def free_port() -> int:
    """A port of loopback that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _inherited() -> dict[str, str]:
    """The environment without what would change a child's settings."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("SLUICE_") and name != "KUBECONFIG"
    }


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _PATIENCE)
    except TimeoutError:
        with suppress(ProcessLookupError):  # it may have ended just now
            process.kill()
        await process.wait()
