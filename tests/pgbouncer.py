"""pgbouncer in transaction mode in front of a test's PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port
from tests.postgresql_server import PostgreSQL

POOL = 4
"""Server connections per database; few, so that the transactions of one client use several of them."""


@contextmanager
def running_pgbouncer(server: PostgreSQL) -> Iterator[int]:
    """Run pgbouncer during the block; yields its port."""
    folder, port = Path(tempfile.mkdtemp(prefix="sluice-pgbouncer-")), free_port()
    (folder / "users").write_text(f'"postgres" "{server.password}"\n')
    (folder / "configuration").write_text(
        f"""
[databases]
* = host=127.0.0.1 port={server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder / "users"}
pool_mode = transaction
default_pool_size = {POOL}
max_client_conn = 500
"""
    )
    user = "postgres" if os.geteuid() == 0 else None  # pgbouncer refuses to run as root
    if user:
        for each in (folder, *folder.iterdir()):
            shutil.chown(each, user)
    path = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    assert path is not None, "the tests need pgbouncer: tests/install-tools.sh installs it"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([path, folder / "configuration"], user=user, stdout=log, stderr=log)
    try:
        while not _answers(port):
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.02)
        yield port
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
