"""PostgreSQL over TLS: trusted certificates, modes, and a client certificate in place of a password."""

from __future__ import annotations

import asyncio
import shutil
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from admission.model.errors import StoreError
from admission.store.database.connection import Location, tls_context
from admission.store.errors import InvalidDatabaseUrl
from admission.store.store import Store
from tests.event_loop import run

sys.path.append(str(Path(__file__).parents[1] / "api"))
from pki import Authority
from postgresql_server import PostgreSQL


@pytest.mark.costly
@pytest.mark.postgres
def test_certificates_of_server_and_client_are_verified(own_postgresql: PostgreSQL, tmp_path: Path):
    ours, foreign = Authority(tmp_path, "ours", key_identifiers=False), Authority(tmp_path, "foreign")
    _enable_tls(own_postgresql, ours)
    base = own_postgresql.url("sluice_template").replace("127.0.0.1", "localhost")
    full = f"{base}?sslmode=verify-full&sslrootcert={ours.file}"
    assert run(_health_or_error(full)) == "well"
    says = "presents a certificate that is not trusted"
    assert says in run(_health_or_error(f"{base}?sslmode=verify-ca&sslrootcert={foreign.file}"))
    _install_certificates(own_postgresql, ours, lifetime=-timedelta(days=1))
    own_postgresql.execute("SELECT pg_reload_conf()")
    error = run(_health_or_error(full))
    assert "certificate has expired" in error
    assert "; check this machine's clock, which shows" in error
    _enable_tls(own_postgresql, ours)
    by_address = full.replace("localhost", "127.0.0.1")  # the certificate is for the name alone
    assert "127.0.0.1" in run(_health_or_error(by_address))
    assert run(_health_or_error(by_address.replace("verify-full", "verify-ca"))) == "well"
    _require_client_certificates(own_postgresql)
    client = ours.client("postgres")
    without_password = full.replace(f":{own_postgresql.password}@", "@")
    assert run(_health_or_error(f"{without_password}&sslcert={client.certificate}&sslkey={client.key}")) == "well"
    assert run(_health_or_error(without_password)) != "well"


@pytest.mark.postgres
def test_sslmode_determines_whether_the_connection_is_encrypted(own_postgresql: PostgreSQL, tmp_path: Path):
    base = own_postgresql.url("sluice_template")
    assert run(_is_encrypted(f"{base}?sslmode=prefer")) is False, "the server has no certificate yet"
    assert run(_health_or_error(f"{base}?sslmode=require")) != "well"
    _enable_tls(own_postgresql, Authority(tmp_path, "ours"))
    for mode, encrypted in (("disable", False), ("prefer", True), ("require", True)):
        assert run(_is_encrypted(f"{base}?sslmode={mode}")) is encrypted
    (own_postgresql.folder / "data" / "pg_hba.conf").write_text("hostssl all all all scram-sha-256\n")
    own_postgresql.execute("SELECT pg_reload_conf()")
    assert run(_health_or_error(f"{base}?sslmode=disable")) != "well"


async def _is_encrypted(url: str) -> bool:
    async with Store.open(url) as store, store._database.read() as connection:
        question = text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        return bool((await connection.execute(question)).scalar_one())


@pytest.mark.costly
@pytest.mark.postgres
def test_renewed_client_certificate_and_root_are_used_without_a_restart(own_postgresql: PostgreSQL, tmp_path: Path):
    before, after = Authority(tmp_path, "before"), Authority(tmp_path, "after")
    _enable_tls(own_postgresql, before)
    _require_client_certificates(own_postgresql)
    shown, key, trusted = tmp_path / "shown.crt", tmp_path / "shown.key", tmp_path / "trusted.crt"

    def give(authority: Authority) -> None:
        pair = authority.client("postgres")
        for source, target in ((pair.certificate, shown), (pair.key, key), (authority.file, trusted)):
            shutil.copyfile(source, target)

    async def rotate() -> None:
        give(before)
        options = f"sslmode=verify-full&sslrootcert={trusted}&sslcert={shown}&sslkey={key}"
        url = f"postgresql://postgres@localhost:{own_postgresql.port}/sluice_template?{options}"
        async with Store.open(url) as store:
            assert await store.health() is None
            await asyncio.to_thread(_restart_with_certificates, own_postgresql, after)
            assert await store.health() is not None, "the server believes the first authority no more"
            shown.write_text("half a certif")
            assert await store.health() is not None
            give(after)
            assert await store.health() is None

    run(rotate())


def _restart_with_certificates(server: PostgreSQL, authority: Authority) -> None:
    server.kill()
    _install_certificates(server, authority)
    server.start()


async def _health_or_error(url: str) -> str:
    """Return the health of the store (`well`: no fault), or the error that prevents opening it."""
    try:
        async with Store.open(url) as store:
            return await store.health() or "well"
    except StoreError as error:
        return str(error)


def _enable_tls(server: PostgreSQL, authority: Authority) -> None:
    _install_certificates(server, authority)
    server.execute("ALTER SYSTEM SET ssl = on", "ALTER SYSTEM SET ssl_ca_file = 'root.crt'", "SELECT pg_reload_conf()")


def _install_certificates(server: PostgreSQL, authority: Authority, *, lifetime: timedelta = timedelta(days=1)) -> None:
    data = server.folder / "data"
    pair = authority.server("localhost", lifetime=lifetime)
    for source, name in ((pair.certificate, "server.crt"), (pair.key, "server.key"), (authority.file, "root.crt")):
        shutil.copyfile(source, data / name)
        shutil.chown(data / name, data.owner(), data.group())
        (data / name).chmod(0o600)


def _require_client_certificates(server: PostgreSQL) -> None:
    """Require client certificates instead of passwords, over TLS only."""
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
def test_inconsistent_tls_options_are_rejected_with_a_message(options: str, says: str):
    with pytest.raises(InvalidDatabaseUrl, match=says):
        tls_context(Location.parse(f"postgresql://db/sluice?{options}").url.query)
