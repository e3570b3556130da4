"""PostgreSQL over TLS: whose certificate is believed, and a client's own one in place of a password."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from admission.model.errors import StoreError
from admission.store.database.connection import Location
from admission.store.database.tls import tls_context
from admission.store.errors import InvalidDatabaseUrl
from admission.store.store import Store

sys.path.append(str(Path(__file__).parents[1] / "api"))
from pki import Authority

if TYPE_CHECKING:
    from postgresql_server import PostgreSQL


@pytest.mark.postgres
def test_certificates_go_both_ways(own_postgresql: PostgreSQL, tmp_path: Path):
    ours, foreign = Authority(tmp_path, "ours"), Authority(tmp_path, "foreign")
    _speak_tls(own_postgresql, ours)
    base = own_postgresql.url("sluice_template").replace("127.0.0.1", "localhost")
    full = f"{base}?sslmode=verify-full&sslrootcert={ours.file}"
    assert asyncio.run(_answer(full)) == "well"
    assert "certificate" in asyncio.run(_answer(f"{base}?sslmode=verify-ca&sslrootcert={foreign.file}"))
    by_address = full.replace("localhost", "127.0.0.1")  # the certificate is for the name alone
    assert "127.0.0.1" in asyncio.run(_answer(by_address))
    assert asyncio.run(_answer(by_address.replace("verify-full", "verify-ca"))) == "well"
    _want_certificates(own_postgresql)
    client = ours.client("postgres")
    without_password = full.replace(f":{own_postgresql.password}@", "@")
    assert asyncio.run(_answer(f"{without_password}&sslcert={client.certificate}&sslkey={client.key}")) == "well"
    assert asyncio.run(_answer(without_password)) != "well"


async def _answer(url: str) -> str:
    """What the store says of itself there, or what keeps it from being opened."""
    try:
        async with Store.open(url) as store:
            return await store.health() or "well"
    except StoreError as error:
        return str(error)


def _speak_tls(server: PostgreSQL, authority: Authority) -> None:
    data = server.folder / "data"
    pair = authority.server("localhost")
    for source, name in ((pair.certificate, "server.crt"), (pair.key, "server.key"), (authority.file, "root.crt")):
        shutil.copyfile(source, data / name)
        shutil.chown(data / name, data.owner(), data.group())
        (data / name).chmod(0o600)
    server.execute("ALTER SYSTEM SET ssl = on", "ALTER SYSTEM SET ssl_ca_file = 'root.crt'", "SELECT pg_reload_conf()")


def _want_certificates(server: PostgreSQL) -> None:
    """In place of passwords, of whoever comes by TLS."""
    (server.folder / "data" / "pg_hba.conf").write_text("hostssl all all all cert\n")
    server.kill()
    server.start()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("sslmode=prefer&sslrootcert=ca.crt", "sslmode=prefer makes no use of sslrootcert"),
        ("sslmode=verify-full&sslcert=tls.crt&sslkey=tls.key", "sslmode=verify-full needs sslrootcert"),
        ("sslmode=require&sslkey=tls.key", "sslkey is given without sslcert"),
        ("sslrootcert=/nowhere/ca.crt", "the certificates of the database URL cannot be used"),
    ],
)
def test_a_mistake_in_the_options_is_a_sentence(options: str, says: str):
    with pytest.raises(InvalidDatabaseUrl, match=says):
        tls_context(Location.parse(f"postgresql://db/sluice?{options}").url.query)
