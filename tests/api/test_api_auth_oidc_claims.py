"""OpenID Connect: users and groups from claims, and errors of the issuer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from api_and_cluster import serving_with_cluster
from oidc_browser import OURS, Browser, client_of, refused, unusable

from admission.api.auth.oidc.client import OidcClient
from admission.api.auth.oidc.id_tokens import user
from admission.api.errors import Forbidden

# ------------------------------------------------------------------ claims


def named(claims: dict[str, Any], **settings: Any) -> tuple[str, tuple[str, ...]]:
    client = OidcClient("https://a.example", "sluice", "https://b.example", 60.0, **settings)
    who = user(claims, client, source="")
    return who.name, who.groups


@pytest.mark.parametrize(
    ("claims", "settings", "expected"),
    [
        ({"sub": "a"}, {"username_prefix": "https://a.example#"}, ("https://a.example#a", ())),
        ({"sub": "a", "email": "a@b"}, {"username_claim": "email"}, ("a@b", ())),
        ({"email": "a@b", "email_verified": True}, {"username_claim": "email"}, ("a@b", ())),
        ({"sub": "a", "roles": "one"}, {"groups_claim": "roles"}, ("a", ("one",))),
        ({"sub": "a", "groups": ["x"]}, {}, ("a", ())),
        # Groups that begin with system: are dropped: an issuer must not make users masters of the cluster.
        ({"sub": "a", "groups": ["system:masters", "b", ""]}, {"groups_claim": "groups"}, ("a", ("b",))),
        ({"sub": "a", "groups": ["masters"]}, {"groups_claim": "groups", "groups_prefix": "system:"}, ("a", ())),
    ],
)
def test_claims_are_mapped_to_user_and_groups_as_by_the_api_server(claims, settings, expected):
    name, groups = expected
    assert named(claims, **settings) == (name, (*groups, "system:authenticated"))


@pytest.mark.parametrize(
    ("claims", "settings", "said"),
    [
        ({"sub": "system:admin"}, {}, "begin with system:"),
        ({"sub": "admin"}, {"username_prefix": "system:"}, "begin with system:"),
        ({"sub": ""}, {}, "not a user name"),
        ({"sub": "a\0b"}, {}, "printable characters"),
        ({"sub": "a" * 513}, {}, "printable characters"),
        ({"sub": 3}, {}, "not a user name"),
        ({"sub": "a"}, {"username_claim": "email"}, "claim email is not a user name"),
        ({"email": "a@b", "email_verified": False}, {"username_claim": "email"}, "not verified your e-mail"),
        ({"email": "a@b", "email_verified": "false"}, {"username_claim": "email"}, "not verified your e-mail"),
    ],
)
def test_sign_in_without_a_usable_user_name_is_forbidden(claims, settings, said):
    with pytest.raises(Forbidden, match=said):
        named(claims, **settings)


async def test_sign_in_without_a_required_claim_is_forbidden(store, tmp_path, clock, accounts):
    client = client_of(accounts, required_claims=(("hd", "example.com"),))
    async with serving_with_cluster(store, tmp_path, clock=clock, oidc=client) as server_with_oidc:
        browser = Browser(server_with_oidc, accounts, {})
        assert refused(await browser.sign_in(), "the claim hd")
        accounts.claims["hd"] = "example.com"
        assert (await browser.sign_in()).status == 200


# ------------------------------------------------------------------ errors of the issuer


TROUBLES = (
    ("padding", "x" * 300_000, "answers more than 256 KiB"),
    ("status", 500, "answers 500"),
    ("status", 302, "answers 302"),
    ("metadata", {"issuer": "https://evil.example"}, "it calls itself https://evil.example"),
    *(
        ("metadata", {"authorization_endpoint": endpoint}, "authorization_endpoint is not an https URL")
        for endpoint in ("http://localhost/authorize", "javascript:alert(1)", ["https://a"], "https://[")
    ),
)


async def test_invalid_response_of_the_issuer_is_answered_with_503_and_its_cause_logged(
    browser, accounts, caplog, clock
):
    for name, value, logged in TROUBLES:
        before = getattr(accounts, name)
        setattr(accounts, name, value)
        assert unusable(await browser.post("/login/oidc", {}), accounts)
        setattr(accounts, name, before)
        assert logged in caplog.text
        caplog.clear()
        clock.advance(601)


async def test_wrong_or_missing_client_secret_is_answered_with_503_and_logged(browser, accounts, caplog):
    accounts.secret_file.write_text("wrong")
    assert unusable(await browser.sign_in(), accounts)
    assert "does not accept oidc.clientId with its secret" in caplog.text
    accounts.secret_file.unlink()
    assert unusable(await browser.sign_in(), accounts)
    assert "oidc.clientSecretFile cannot be read" in caplog.text


async def test_issuer_with_an_untrusted_certificate_is_answered_with_503(store, tmp_path, clock, accounts, caplog):
    client = replace(client_of(accounts), ca_file=None)
    async with serving_with_cluster(store, tmp_path, clock=clock, oidc=client) as server_with_oidc:
        assert unusable(await Browser(server_with_oidc, accounts, {}).post("/login/oidc", {}), accounts)
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text


async def test_sign_in_works_as_soon_as_the_issuer_has_recovered(browser, accounts):
    accounts.status = 500
    assert unusable(await browser.post("/login/oidc", {}), accounts)
    accounts.status = 200
    assert (await browser.sign_in()).status == 200


@pytest.mark.costly
async def test_stalled_issuer_does_not_delay_other_requests_and_logins(browser, server_with_oidc, accounts):
    """The token endpoint stalls; requests for the metadata and the keys of the issuer are sent by the same function."""
    accounts.silent.add("token")
    signing_in = asyncio.create_task(browser.sign_in())
    await accounts.waiting.wait()
    assert (await server_with_oidc.send("GET", "/session", token="the-admins-token")).status == 200
    assert (await server_with_oidc.send("POST", "/login", {"token": "alice-token"}, headers=OURS)).status == 200
    assert not signing_in.done()
    assert unusable(await signing_in, accounts)
