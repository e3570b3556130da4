"""Fork server for `sluice` processes of tests, shells and demos; one for each test run.

It has imported `sluice`, which takes 0.3 to 1.5 s of processor time; pages of the documentation have hundreds of
commands, and a demo is three processes. A client sends arguments, directory, environment, streams and descriptors to
the server's socket, and receives the pid and the exit code: `forking.py` for tests, the script `warm_sluice` beside
this file for shells. `test_readme.py`, `test_getting_started.py` and some of `test_demo_run.py` start the installed
command.
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

COMMAND: Final = Path(__file__).with_name("warm_sluice")
"""Script that stands in for `sluice`; it finds the server by `WARM_SLUICE` in its environment."""

_LAZY_MODULES = (
    # Modules that `sluice serve`, `sluice demo` and `sluice sandbox` import only when they run.
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
    """Return the address of this test run's server, as in `WARM_SLUICE`; start the server if it does not run.

    All workers share it, and it ends with the last of them. Connections wait until it has imported all modules.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or secrets.token_hex(16)
    while True:
        joining = socket.socket(socket.AF_UNIX)
        try:
            joining.connect(f"\0sluice-users-{run}")
        except ConnectionRefusedError:
            joining.close()
            with suppress(OSError):  # another worker is starting it at the same time
                _start(run)
        else:
            joining.detach()  # left open: by its closing the server detects the end of this process
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
    """Start `sluice`; return the connection on which `exit_code` waits, and the pid.

    The process is killed when the connection is closed. `forks`: whether the processes that it starts are forked too;
    `files`: its limit of open files; `clock`: file that sets its clock (`chaos/stepped.py`).
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
    """Wait for the end of a process and return its exit code; negative: the signal that ended it."""
    return int.from_bytes(connection.recv(2), "big", signed=True)


def prepare() -> None:
    """Import the modules of all commands of `sluice`."""
    gc.disable()
    import_module("tests.strict_tls")  # before modules that make contexts
    import_module("tests.chaos.stepped_time")  # before modules that import functions from `time`
    commands = import_module("admission.cli.main")._COMMANDS.values()
    for module in [*(command.module for command in commands), *_LAZY_MODULES]:
        import_module(module)
    gc.freeze()
    gc.enable()


def serve(orders: socket.socket, users: socket.socket, first: socket.socket) -> None:
    """Fork a process for each order, until the last process of the test run has ended.

    `orders` and `users` are listening sockets; each process of the test run keeps a connection to `users`, the process
    that started the server also the other end of `first`.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; this one ends with the tests
    watched = [orders, users, first]
    while len(watched) > 2:
        for ready in select.select(watched, [], [])[0]:
            if ready is users:
                watched.append(users.accept()[0])
            elif ready is not orders:
                watched.remove(ready)
                ready.close()
            else:
                connection, _ = orders.accept()
                with connection:
                    if os.fork() == 0:
                        for inherited in watched:
                            inherited.close()
                        _run_order(connection)


def _run_order(connection: socket.socket) -> None:
    """Run an order in a process with its streams, directory, environment and limits. Does not return."""
    length, sent, _, _ = socket.recv_fds(connection, 4, 64)
    with connection.makefile("rb") as reading:
        order = json.loads(reading.read(int.from_bytes(length, "big")))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        for descriptor in sent:
            os.close(descriptor)
        _supervise(connection, pid)
    connection.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _move_descriptors(sent, [0, 1, 2, *order["numbers"]])
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
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # the script needs this python3
        sys.executable = str(COMMAND)
    _run(order["module"])


def _run(module: str) -> None:
    """Run the module's main and exit, without the interpreter's teardown of modules.

    The teardown would take half the time of a short command.
    """
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


def _move_descriptors(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Move descriptors to these numbers, which may overlap with the present ones."""
    beyond = max(numbers) + 1
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, beyond) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, number in zip(copies, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _supervise(connection: socket.socket, pid: int) -> None:
    """Report the exit code of a process to the client; kill it if the client closes the connection."""
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
