"""Certificates of the webhook: renewal in time, and rotations during which clients trust every served certificate."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import stat
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from admission.serving.tls import ReloadingContext
from webhooks.certificates import Certificates
from webhooks.errors import CertificateError
from webhooks.exposition import ServedCertificate

# The clock of the certificates is injected, that of OpenSSL is not: tests that connect need the present as a start.
START = datetime.now(UTC).replace(microsecond=0)


class Clock:
    def __init__(self, now=START):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make(tmp_path, clock):
    def make(hosts=("127.0.0.1", "sluice-webhook.sluice.svc"), directory=tmp_path / "certificates"):
        certificates = Certificates(directory, hosts, now=clock)
        changed = certificates.renew()
        return certificates, changed

    return make


def server_certificate(directory):
    return x509.load_pem_x509_certificate((directory / "tls.crt").read_bytes())


def authorities(certificates):
    return x509.load_pem_x509_certificates(certificates.ca_bundle)


def serving(directory):
    return ReloadingContext(directory / "tls.crt", directory / "tls.key")


@contextlib.asynccontextmanager
async def served(context):
    async def close(_, writer):
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(close, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def handshake(port, bundle, *, host="127.0.0.1"):
    """Return the certificate served to a client that trusts `bundle`; raises if the client does not trust it."""
    context = ssl.create_default_context(cadata=bundle.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()
    return x509.load_der_x509_certificate(shown)


@pytest.mark.parametrize("host", ["127.0.0.1", "sluice-webhook.sluice.svc"])
async def test_strict_tls_client_trusts_the_served_certificate(make, tmp_path, host):
    certificates, changed = make()
    assert changed
    async with served(serving(tmp_path / "certificates")) as port:
        shown = await handshake(port, certificates.ca_bundle, host=host)
        assert shown.not_valid_after_utc - START == timedelta(days=90)
        with pytest.raises(ssl.SSLCertVerificationError):
            await handshake(port, certificates.ca_bundle, host="other.example")


def test_certificate_files_are_accessible_to_their_owner_only(make, tmp_path):
    make()
    directory = tmp_path / "certificates"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    files = sorted(path.name for path in directory.iterdir())
    assert files == ["ca.crt", "ca.key", "tls.crt", "tls.key"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}


def test_certificates_are_unchanged_after_59_days(make, tmp_path, clock):
    make()
    before = {path.name: path.read_bytes() for path in (tmp_path / "certificates").iterdir()}
    clock.now += timedelta(days=59)
    _, changed = make()
    assert not changed
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "certificates").iterdir()}


async def test_renewed_certificate_is_served_to_new_connections_without_restart(make, tmp_path, clock):
    certificates, _ = make()
    context = serving(tmp_path / "certificates")
    async with served(context) as port:
        first = await handshake(port, certificates.ca_bundle)
        clock.now += timedelta(days=61)
        bundle = certificates.ca_bundle
        assert certificates.renew()
        assert certificates.ca_bundle == bundle
        context.refresh()
        # Its validity begins in 61 days by the clock of OpenSSL, so this client verifies no certificate.
        trusting = ssl.create_default_context(cadata=bundle.decode())
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        shown = x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        writer.close()
        assert shown.serial_number != first.serial_number
        assert shown.not_valid_after_utc == clock.now + timedelta(days=90)
        shown.verify_directly_issued_by(authorities(certificates)[0])


def test_new_ca_is_in_the_bundle_before_it_signs_certificates(make, tmp_path, clock):
    certificates, _ = make()
    (old,) = authorities(certificates)
    clock.now += timedelta(days=3650 - 366)
    certificates.renew()
    directory = tmp_path / "certificates"
    signed_by_old = server_certificate(directory)
    clock.now += timedelta(days=2)
    assert certificates.renew()
    new, kept = authorities(certificates)
    assert kept == old
    assert new.not_valid_after_utc > old.not_valid_after_utc
    assert server_certificate(directory) == signed_by_old
    clock.now += timedelta(days=60)
    certificates.renew()
    server_certificate(directory).verify_directly_issued_by(new)
    clock.now += timedelta(days=366)
    certificates.renew()
    clock.now = new.not_valid_after_utc - timedelta(days=364)
    certificates.renew()
    assert old not in authorities(certificates)


def test_changed_hosts_cause_a_new_certificate(make, tmp_path):
    make()
    before = server_certificate(tmp_path / "certificates")
    certificates, changed = make(hosts=["192.0.2.1"])
    assert changed
    after = server_certificate(tmp_path / "certificates")
    assert after != before
    names = after.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name) for name in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.1"]
    assert len(authorities(certificates)) == 1


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
@pytest.mark.parametrize(
    "content", [None, b"", b"garbage", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
async def test_missing_or_corrupt_certificate_files_are_replaced(make, tmp_path, name, content):
    make()
    path = tmp_path / "certificates" / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    certificates, changed = make()
    assert changed
    async with served(serving(tmp_path / "certificates")) as port:
        await handshake(port, certificates.ca_bundle)


def test_unwritable_directory_is_a_certificate_error(make, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CertificateError, match="cannot read or write the webhook's certificates"):
        make(directory=tmp_path / "file" / "certificates")


def test_expiry_of_each_served_certificate_is_logged_once(make, clock, tmp_path, caplog):
    served, logged = ServedCertificate(now=lambda: clock().timestamp()), []
    for _ in range(2):
        make()
        pem = (tmp_path / "certificates" / "tls.crt").read_bytes()
        served.update(pem)
        assert served.fault() is None
        clock.now += timedelta(days=91)
        served.update(pem)
        served.update(pem)
        logged.append(caplog.text.count("the certificate of the webhook has expired"))
    assert logged == [1, 2]
