"""What an OpenID Connect issuer says of people, and what is said when it cannot be asked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from doors_world import world
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
        # Nobody becomes a master by what a group is called somewhere else.
        ({"sub": "a", "groups": ["system:masters", "b", ""]}, {"groups_claim": "groups"}, ("a", ("b",))),
        ({"sub": "a", "groups": ["masters"]}, {"groups_claim": "groups", "groups_prefix": "system:"}, ("a", ())),
    ],
)
def test_users_and_groups_are_named_as_the_api_server_names_them(claims, settings, expected):
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
def test_who_has_no_usable_name_may_not_sign_in(claims, settings, said):
    with pytest.raises(Forbidden, match=said):
        named(claims, **settings)


async def test_a_claim_may_be_required(store, tmp_path, clock, accounts):
    client = client_of(accounts, required_claims=(("hd", "example.com"),))
    async with world(store, tmp_path, clock=clock, oidc=client) as oidc_doors:
        browser = Browser(oidc_doors, accounts, {})
        assert refused(await browser.sign_in(), "the claim hd")
        accounts.claims["hd"] = "example.com"
        assert (await browser.sign_in()).status == 200


# ------------------------------------------------------------------ an issuer in trouble


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


async def test_an_issuer_that_says_nonsense_is_told_in_one_sentence(browser, accounts, caplog, clock):
    for name, value, logged in TROUBLES:
        before = getattr(accounts, name)
        setattr(accounts, name, value)
        assert unusable(await browser.post("/login/oidc", {}), accounts)
        setattr(accounts, name, before)
        assert logged in caplog.text
        caplog.clear()
        clock.advance(601)


async def test_a_wrong_secret_is_the_admins_fault_and_said_so(browser, accounts, caplog):
    accounts.secret_file.write_text("wrong")
    assert unusable(await browser.sign_in(), accounts)
    assert "does not accept oidc.clientId with its secret" in caplog.text
    accounts.secret_file.unlink()
    assert unusable(await browser.sign_in(), accounts)
    assert "oidc.clientSecretFile cannot be read" in caplog.text


async def test_an_issuer_whose_certificate_nobody_trusts_is_not_used(store, tmp_path, clock, accounts, caplog):
    client = replace(client_of(accounts), ca_file=None)
    async with world(store, tmp_path, clock=clock, oidc=client) as oidc_doors:
        assert unusable(await Browser(oidc_doors, accounts, {}).post("/login/oidc", {}), accounts)
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text


async def test_an_issuer_that_is_back_is_used_at_once(browser, accounts):
    accounts.status = 500
    assert unusable(await browser.post("/login/oidc", {}), accounts)
    accounts.status = 200
    assert (await browser.sign_in()).status == 200


async def test_a_stalled_issuer_delays_nobody_else(browser, oidc_doors, accounts):
    """Where it stalls makes no difference, but that it is asked in turn for itself, the token, and its keys."""
    accounts.silent.add("token")
    signing_in = asyncio.create_task(browser.sign_in())
    await accounts.waiting.wait()
    assert (await oidc_doors.send("GET", "/session", token="the-admins-token")).status == 200
    assert (await oidc_doors.send("POST", "/login", {"token": "alice-token"}, headers=OURS)).status == 200
    assert not signing_in.done()
    assert unusable(await signing_in, accounts)
