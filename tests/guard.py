"""pytest plugin: guards of a test run, which end what it leaves behind, also when it is interrupted or killed.

Tests start processes that start others, some in sessions of their own. Linux gives each process whose parent has ended
to its nearest ancestor that is a subreaper (prctl(2), PR_SET_CHILD_SUBREAPER): the guards are, so that all processes of
the run stay their descendants. There are two, one inside of the other, because one may be killed itself.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import pytest

SECONDS_TO_END: Final = 1.0
"""Within which processes end that end by themselves, after a run that was not killed."""
SECONDS_AFTER_TERM: Final = 5.0
"""Within which a process ends in good order, so that PostgreSQL frees its shared memory; then it is killed."""

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_SI_KERNEL: Final = 128
_PASSED_ON: Final = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
_MEMORY_NEEDED: Final = 4_000_000_000


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before a conftest can start a thread, which a fork would lose
def pytest_load_initial_conftests() -> Iterator[None]:
    """Guard the run, then load the conftests."""
    _guard()
    return (yield)


def _guard() -> None:
    """Go on in a process whose descendants and temporary files end with it; the present process waits for it.

    The exit code is passed on, and so are signals. Temporary files are in memory if there are 4 GB of it, because the
    tests write some hundred MB, most of it databases that live for a second; TMPDIR in the environment has them
    elsewhere, and kept.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    folder = None if "TMPDIR" in os.environ else _folder_in_memory()
    if folder is not None:
        os.environ["TMPDIR"] = str(folder)
    sys.stdout.flush()
    sys.stderr.flush()
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_PASSED_ON})
    _fork_guarded(folder)
    _set(_PR_SET_PDEATHSIG, signal.SIGTERM)
    _fork_guarded(folder)
    _set(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, usual)
    tempfile.tempdir = None  # it may have been computed already


def _folder_in_memory() -> Path | None:
    memory = Path("/dev/shm")
    try:
        meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        space = os.statvfs(memory)
    except OSError:
        return None
    available = int(meminfo["MemAvailable"].split()[0]) * 1024
    # Containers often forbid to execute files there, which some tests do.
    if space.f_flag & os.ST_NOEXEC or min(available, space.f_bavail * space.f_frsize) < _MEMORY_NEEDED:
        return None
    folder = Path(tempfile.mkdtemp(prefix="sluice-tests.", dir=memory))
    folder.chmod(0o755)  # as root, PostgreSQL runs as another user
    return folder


def _fork_guarded(folder: Path | None) -> None:
    """Return in a new process; this one guards it until its end. Raises OSError."""
    _set(_PR_SET_CHILD_SUBREAPER, 1)
    if child := os.fork():
        _wait(child, folder)


def _set(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _wait(child: int, folder: Path | None) -> NoReturn:
    """Pass signals on to the child; when it has ended, end what it leaves behind, and exit with its code."""
    code = None
    while code is None:
        received = signal.sigwaitinfo({signal.SIGCHLD, *_PASSED_ON})
        # A terminal sends its signals to all processes.
        if received.si_signo != signal.SIGCHLD and received.si_code != _SI_KERNEL:
            with suppress(ProcessLookupError):
                os.kill(child, received.si_signo)
        code = _reap(child)
    if code < 0:
        _end_descendants()
    elif left := _end_descendants(patience=SECONDS_TO_END):
        print("The tests left processes behind, which were ended:", *left, sep="\n", file=sys.stderr, flush=True)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(code if code >= 0 else 128 - code)  # as a shell does


def _reap(child: int) -> int | None:
    """Free ended children, which include orphans; return the exit code of `child` if it is one of them."""
    code = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
    return code


def _end_descendants(*, patience: float = 0.0) -> list[str]:
    """End all descendants of this process; return the commands of those that did not end within `patience` seconds."""
    _all_ended_within(patience)
    left = [_command(process) for process in _descendants()]
    if not _all_ended_within(SECONDS_AFTER_TERM, signal.SIGTERM):
        _all_ended_within(float("inf"), signal.SIGKILL)
    return left


def _all_ended_within(seconds: float, number: int = 0) -> bool:
    """Whether all descendants have ended within that time, each of which is sent the signal once; 0: none."""
    signalled: set[int] = set()
    deadline = time.monotonic() + seconds
    while left := _descendants():
        if time.monotonic() >= deadline:
            return False
        for process in set(left) - signalled if number else ():
            signalled.add(process)
            with suppress(ProcessLookupError):
                os.kill(process, number)
                os.kill(process, signal.SIGCONT)  # tests stop processes
        time.sleep(0.02)
        _reap(0)
    return True


def _descendants() -> list[int]:
    """Return the processes that this one or its descendants have started, without those that have ended."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            state, parent = stat.read_bytes().rpartition(b")")[2].split()[:2]
            if state != b"Z":
                children.setdefault(int(parent), []).append(int(stat.parent.name))
    found: list[int] = []
    parents = [os.getpid()]
    while parents:
        started = children.get(parents.pop(), [])
        found += started
        parents += started
    return found


def _command(process: int) -> str:
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return f"{process}"
    return f"{process} {b' '.join(words).decode(errors='replace')[:200]}"
