"""Requests to receivers: allowed addresses, redirects, URLs and secrets from files, and Retry-After."""

from __future__ import annotations

import ssl
from dataclasses import replace
from ipaddress import ip_network

import pytest
from receiving import LOOPBACK, inbox, receiver

from admission.notifications.receivers import DeliveryFailed, Receivers
from admission.notifications.sending import NotificationSender, is_allowed
from tests.api.pki import Authority

EVENT = {"id": "1", "type": "dev.sluice.workload.admitted", "data": {}}


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "192.0.2.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1",
        "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::", "2001:0:4136:e378:8000:63bf:80ff:fffe", "2001:db8::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_of_the_public_internet_are_refused(address):
    assert not is_allowed(address, ())


@pytest.mark.parametrize("address", ["8.8.8.8", "140.82.121.4", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_addresses_of_the_public_internet_are_allowed(address):
    assert is_allowed(address, ())


def test_allowed_networks_include_ipv4_mapped_addresses():
    networks = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    assert is_allowed("10.1.2.3", networks)
    assert is_allowed("::ffff:10.1.2.3", networks)
    assert is_allowed("fd00::1", networks)
    assert not is_allowed("127.0.0.1", networks)


async def refusal(sender, given) -> str:
    with pytest.raises(DeliveryFailed) as raised:
        await sender.send(given, EVENT, at=0.0)
    return str(raised.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]"])
async def test_no_connection_is_made_to_loopback_by_any_name(tmp_path, host):
    async with inbox() as box, NotificationSender.open(lambda: Receivers({})) as sender:
        hostile = replace(receiver("pager", tmp_path, box), url=box.url.replace("127.0.0.1", host))
        text = await refusal(sender, hostile)
        assert box.received == []
        assert "/hook" not in text, "a URL may be a secret"


async def test_changed_allowed_networks_apply_to_the_next_request(tmp_path):
    async with inbox() as box:
        allowed = Receivers({})
        async with NotificationSender.open(lambda: allowed) as sender:
            given = receiver("pager", tmp_path, box)
            assert "127.0.0.1 is not a public address" in await refusal(sender, given)
            allowed = Receivers({}, (LOOPBACK,))
            await sender.send(given, EVENT, at=0.0)
            allowed = Receivers({})
            await refusal(sender, given)
            assert len(box.received) == 1


async def test_a_redirect_is_not_followed(tmp_path):
    async with inbox() as box, NotificationSender.open(lambda: Receivers({}, (LOOPBACK,))) as sender:
        box.status, box.headers = 307, {"Location": "/elsewhere"}
        assert "answers 307, a redirect, which is not followed" in await refusal(sender, receiver("a", tmp_path, box))
        assert [one.path for one in box.received] == ["/hook"]


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://127.0.0.1/", "http://", "http://[::1", "not a url", "http://a b/"]
)
async def test_invalid_url_from_a_file_fails_the_delivery_and_is_not_shown(tmp_path, url):
    file = tmp_path / "url"
    file.write_text(url)
    async with inbox() as box, NotificationSender.open(lambda: Receivers({}, (LOOPBACK,))) as sender:
        text = await refusal(sender, replace(receiver("a", tmp_path, box), url="", url_file=file))
        assert url not in text


async def test_secret_file_is_read_for_each_request(tmp_path):
    async with inbox() as box, NotificationSender.open(lambda: Receivers({}, (LOOPBACK,))) as sender:
        given = receiver("a", tmp_path, box)
        await sender.send(given, EVENT, at=0.0)
        (tmp_path / "secret").write_text("whsec_c2VjcmV0")
        await sender.send(given, EVENT, at=0.0)
        (tmp_path / "secret").write_text("whsec_not base64")
        assert "is no base64" in await refusal(sender, given)
        (tmp_path / "secret").unlink()
        assert "the secret of receiver a cannot be read" in await refusal(sender, given)
        first, second = [one.headers["webhook-signature"] for one in box.received]
        assert first != second


async def test_url_file_is_read_for_each_request(tmp_path):
    file = tmp_path / "url"
    async with inbox() as box, NotificationSender.open(lambda: Receivers({}, (LOOPBACK,))) as sender:
        given = replace(receiver("a", tmp_path, box), url="", url_file=file)
        for path in ("/first", "/second"):
            file.write_text(box.url.replace("/hook", path))
            await sender.send(given, EVENT, at=0.0)
        assert [one.path for one in box.received] == ["/first", "/second"]
        file.unlink()
        assert "the file with the URL of receiver a cannot be read" in await refusal(sender, given)


async def test_retry_after_of_a_failed_delivery_is_parsed_and_bounded(tmp_path):
    async with inbox() as box, NotificationSender.open(lambda: Receivers({}, (LOOPBACK,))) as sender:
        for header, seconds in (("30", 30.0), ("999999", 3600.0), ("soon", 0.0), ("9" * 5000, 0.0)):
            box.status, box.headers = 429, {"Retry-After": header}
            with pytest.raises(DeliveryFailed) as raised:
                await sender.send(receiver("a", tmp_path, box), EVENT, at=0.0)
            assert raised.value.retry_after == seconds


async def test_receiver_is_trusted_by_the_authorities_of_the_system(tmp_path, monkeypatch):
    authority = Authority(tmp_path, "company-ca", key_identifiers=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.server("127.0.0.1").load(context)
    async with inbox(context=context) as box:
        pager = receiver("pager", tmp_path, box)
        receivers = Receivers({}, networks=(LOOPBACK,))
        async with NotificationSender.open(lambda: receivers) as sender:
            assert "certificate" in await refusal(sender, pager)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        async with NotificationSender.open(lambda: receivers) as sender:
            await sender.send(pager, EVENT, at=0.0)
    assert len(box.received) == 1
