"""Runs `sluice` for tests, shells and demos, in processes forked from one that has imported it; one in a test run.

To import it takes 0.3 to 1.5 s of processor time, pages of the documentation have hundreds of commands, and a demo is
three processes. Who wants a process sends its arguments, directory, environment, streams and the descriptors that it
is given to the server's socket, and learns its pid and how it ended: the script `warm_sluice` beside this file for
shells, `forking.py` for tests. `test_readme.py`, `test_getting_started.py` and some of `test_demo_run.py` start the
command that is installed.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import resource
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COMMAND: Final = Path(__file__).with_name("warm_sluice")
"""The script; it finds the server by `WARM_SLUICE` in its environment."""

_IMPORTED_LATER = (
    # What `sluice serve`, `sluice demo` and `sluice sandbox` import only when they run.
    "admission.cli.demo.run",
    "admission.cli.serve.forecaster",
    "admission.client",
    "admission.cluster.credential_loaders",
    "admission.sandbox.main",
    "aiosqlite",
    "alembic.config",
    "asyncpg",
    "encodings.idna",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "webhooks.gate",
)


@cache
def address() -> str:
    """Where the server of this test run listens, as in `WARM_SLUICE`: one for all workers, which ends with the last.

    It is started if nobody has; until it has imported all, connections wait.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or secrets.token_hex(16)
    while True:
        joining = socket.socket(socket.AF_UNIX)
        try:
            joining.connect(f"\0sluice-users-{run}")
        except ConnectionRefusedError:
            joining.close()
            with suppress(OSError):  # another worker is starting it just now
                _start(run)
        else:
            joining.detach()  # it stays open: by its end the server learns of the end of this process
            return f"@sluice-{run}"


def _start(run: str) -> None:
    with socket.socket(socket.AF_UNIX) as orders, socket.socket(socket.AF_UNIX) as users:
        orders.bind(f"\0sluice-{run}")
        users.bind(f"\0sluice-users-{run}")
        orders.listen(128)
        users.listen(128)
        first, starts = socket.socketpair()
        with first:
            passed = [orders.fileno(), users.fileno(), first.fileno()]
            subprocess.run((sys.executable, __file__, *map(str, passed)), pass_fds=passed, check=True)
        starts.detach()


def start(
    arguments: Sequence[str],
    streams: Sequence[int],
    environment: Mapping[str, str],
    *,
    forks: bool,
    files: int | None = None,
    clock: Path | None = None,
) -> tuple[socket.socket, int]:
    """Start `sluice` and return its pid, and the connection on which `exit_code` waits; it is killed when that closes.

    `forks`: the processes that it starts itself are forked, too; `files`: how many it may have open; `clock`: the file
    that sets its clock (`chaos/stepped.py`).
    """
    order: dict[str, Any] = {
        "module": "admission.cli.main",
        "arguments": arguments,
        "directory": os.getcwd(),
        "environment": dict(environment),
        "numbers": [],
        "files": files,
        "clock": None if clock is None else str(clock),
        "warm": address() if forks else None,
    }
    connection = socket.socket(socket.AF_UNIX)
    connection.connect("\0" + address().removeprefix("@"))
    sent = json.dumps(order).encode()
    socket.send_fds(connection, [len(sent).to_bytes(4, "big")], list(streams))
    connection.sendall(sent)
    pid = int.from_bytes(connection.recv(4), "big")
    assert pid, "the server of forks has ended"
    return connection, pid


def exit_code(connection: socket.socket) -> int:
    """How a process has ended, as soon as it has; negative: the signal that ended it."""
    return int.from_bytes(connection.recv(2), "big", signed=True)


def prepare() -> None:
    """Import what `sluice` imports for any of its commands."""
    gc.disable()
    import_module("tests.chaos.stepped_time")  # before all that takes the time
    commands = import_module("admission.cli.main")._COMMANDS.values()
    for module in [*(command.module for command in commands), *_IMPORTED_LATER]:
        import_module(module)
    gc.freeze()
    gc.enable()


def serve(orders: socket.socket, users: socket.socket, first: socket.socket) -> None:
    """Fork a process for each order, which runs it, until the last user has gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal interrupts all; this ends with the tests
    waited = [orders, users, first]
    while len(waited) > 2:
        for ready in select.select(waited, [], [])[0]:
            if ready is users:
                waited.append(users.accept()[0])
            elif ready is not orders:
                waited.remove(ready)
                ready.close()
            else:
                connection, _ = orders.accept()
                with connection:
                    if os.fork() == 0:
                        for inherited in waited:
                            inherited.close()
                        _carry_out(connection)


def _carry_out(connection: socket.socket) -> None:
    """Run the command in a process that has all as who ordered it wants it. Does not return."""
    length, sent, _, _ = socket.recv_fds(connection, 4, 64)
    with connection.makefile("rb") as reading:
        order = json.loads(reading.read(int.from_bytes(length, "big")))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        for descriptor in sent:
            os.close(descriptor)
        _watch(connection, pid)
    connection.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _put(sent, [0, 1, 2, *order["numbers"]])
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    if order["files"] is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (order["files"], resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    if order["clock"] is not None:
        stepped: Any = time.time
        stepped.follow(Path(order["clock"]))
    sys.argv = ["sluice", *order["arguments"]]
    if order["warm"] is not None:
        os.environ["WARM_SLUICE"] = order["warm"]
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where the script finds python3
        sys.executable = str(COMMAND)
    _run(order["module"])


def _run(module: str) -> None:
    """End as an interpreter does, but without taking apart all that was imported: half the time of a short command."""
    code = 1
    try:
        import_module(module).main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)


def _put(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Move descriptors to these numbers, some of which may be those of others among them."""
    beyond = max(numbers) + 1
    aside = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, beyond) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, number in zip(aside, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _watch(connection: socket.socket, pid: int) -> None:
    """Tell how it ends; it is killed with who ordered it."""
    connection.sendall(pid.to_bytes(4, "big"))
    ended = os.pidfd_open(pid)
    readable, _, _ = select.select([connection, ended], [], [])
    if ended not in readable:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(BrokenPipeError):
        connection.sendall(code.to_bytes(2, "big", signed=True))
    os._exit(0)


if __name__ == "__main__":
    _orders, _users_, _first = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    if os.fork() == 0:
        prepare()
        serve(_orders, _users_, _first)
