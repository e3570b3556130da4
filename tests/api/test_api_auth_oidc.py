"""Sign-in at an OpenID Connect issuer: the authorization code flow, its session, and attacks on both."""

from __future__ import annotations

import time
from dataclasses import replace
from http.cookies import SimpleCookie
from typing import Any

import jwt
from api_and_cluster import serving_with_cluster
from oidc_browser import DASHBOARD, OURS, SESSION, Browser, client_of, refused
from yarl import URL

from admission.api.auth.authentication import session_content
from admission.api.auth.identity import AuthMethod, Identity
from tests.oidc_issuer import CLIENT_ID, Issuer, rsa_key

LIST_COHORTS = [{"apiGroups": ["sluice.dev"], "resources": ["cohorts"], "verbs": ["list"]}]
# ------------------------------------------------------------------ sign-in and session


async def test_login_endpoint_names_the_configured_issuer(server_with_oidc, accounts):
    assert (await server_with_oidc.send("GET", "/login")).body == {"oidc": {"issuer": accounts.url}}


async def test_authorization_request_has_state_nonce_and_pkce_challenge(server_with_oidc, accounts):
    answer = await server_with_oidc.send("POST", "/login/oidc", {}, headers=OURS)
    location = URL(answer.body["location"])
    assert str(location.with_query(None)) == f"{accounts.url}/authorize"
    query = dict(location.query)
    secrets = [query.pop(name) for name in ("state", "nonce", "code_challenge")]
    assert {len(secret) for secret in secrets} == {43}
    assert len({*secrets}) == 3
    assert query == {
        "response_type": "code",
        "client_id": "sluice",
        "redirect_uri": "https://sluice.example/ui/sign-in",
        "scope": "openid",
        "code_challenge_method": "S256",
    }
    (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    assert cookie.key == "__Host-sluice-sign-in"
    assert (cookie["httponly"], cookie["secure"], cookie["samesite"]) == (True, True, "Strict")
    assert (cookie["path"], cookie["domain"], cookie["max-age"]) == ("/", "", "600")
    assert cookie.value not in str(location)


async def test_session_after_sign_in_has_user_and_groups_of_the_claims(server_with_oidc, browser, clock):
    answer = await browser.sign_in()
    expected = {"user": "oidc:alice", "groups": ["oidc:team-a", "system:authenticated"]}
    assert (answer.status, answer.body) == (200, expected)
    session = SimpleCookie(next(each for each in answer.headers.getall("Set-Cookie") if "session" in each))
    cookie = session["__Host-sluice-session"]
    assert (cookie["httponly"], cookie["secure"], cookie["samesite"], cookie["max-age"]) == (
        True,
        True,
        "Strict",
        "3600",
    )
    assert browser.cookies["__Host-sluice-sign-in"] == ""
    assert (await browser.session()).body == expected | {"standstill": ""}
    assert server_with_oidc.reviews("tokenreviews") == 0


async def test_signed_in_user_needs_permissions_from_the_cluster(server_with_oidc, browser, clock):
    await browser.sign_in()
    cookie = {"Cookie": f"{SESSION}={browser.cookies[SESSION]}"}
    refused = await server_with_oidc.send("GET", "cohorts", headers=cookie)
    assert (refused.status, 'User "oidc:alice" cannot list' in refused.body["message"]) == (403, True)
    await server_with_oidc.grant("oidc:team-a", LIST_COHORTS, kind="Group")
    clock.advance(2)
    assert (await server_with_oidc.send("GET", "cohorts", headers=cookie)).status == 200


async def test_signing_out_ends_the_session_on_the_server(server_with_oidc, browser):
    await browser.sign_in()
    cookie = {"Cookie": f"{SESSION}={browser.cookies[SESSION]}"}
    assert (await server_with_oidc.send("POST", "/logout", headers={**OURS, **cookie})).status == 200
    assert (await browser.session()).status == 401


async def test_session_expires_on_the_server_after_the_configured_lifetime(browser, clock):
    await browser.sign_in()
    clock.advance(3599)
    assert (await browser.session()).status == 200
    clock.advance(1)
    assert (await browser.session()).status == 401


async def test_sessions_of_an_issuer_that_is_no_longer_configured_are_invalid(
    store, tmp_path, clock, browser, accounts
):
    await browser.sign_in()
    other = replace(client_of(accounts), issuer="https://other.example")
    for number, oidc in enumerate((other, None)):
        (folder := tmp_path / str(number)).mkdir()
        async with serving_with_cluster(store, folder, clock=clock, oidc=oidc) as changed:
            assert (await Browser(changed, accounts, {**browser.cookies}).session()).status == 401


async def test_oidc_sign_in_is_unavailable_without_a_configured_issuer(store, tmp_path, clock):
    async with serving_with_cluster(store, tmp_path, clock=clock) as server_with_oidc:
        assert (await server_with_oidc.send("GET", "/login")).body == {}
        assert (await server_with_oidc.send("POST", "/login/oidc", {}, headers=OURS)).status == 401


async def test_forged_session_content_is_not_accepted_as_a_login_token(server_with_oidc, accounts):
    forged = session_content(Identity("root", AuthMethod.OIDC, groups=("system:masters",)), accounts.url)
    for token, status in ((forged, 400), (forged[1:], 401)):
        assert (await server_with_oidc.send("POST", "/login", {"token": token}, headers=OURS)).status == status


async def test_issuer_metadata_and_keys_are_cached_for_ten_minutes(browser, accounts, clock):
    for _ in range(3):
        assert (await browser.sign_in()).status == 200
    assert sorted(accounts.requested) == ["keys", "openid-configuration", "token", "token", "token"]
    clock.advance(601)
    await browser.sign_in()
    assert sorted(accounts.requested) == ["keys"] * 2 + ["openid-configuration"] * 2 + ["token"] * 4


async def test_issuer_keys_are_fetched_again_for_an_unknown_key_id(browser, accounts):
    assert (await browser.sign_in()).status == 200
    accounts.key, accounts.key_id = rsa_key(1), "second"
    assert (await browser.sign_in()).status == 200
    assert accounts.requested.count("keys") == 2


async def test_client_secret_is_sent_by_the_auth_method_of_the_issuer(store, tmp_path, clock, accounts, browser):
    await browser.sign_in()
    assert "client_secret" not in accounts.forms[0]
    accounts.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    clock.advance(601)
    assert (await browser.sign_in()).status == 200
    assert "client_secret" in accounts.forms[1]


# ------------------------------------------------------------------ attacks


async def test_callback_in_another_browser_or_with_a_wrong_state_is_refused(server_with_oidc, browser, accounts):
    given = await browser.begin()
    for cookies in ({}, {"__Host-sluice-sign-in": ""}, {"__Host-sluice-sign-in": "x" * 43}):
        victim = Browser(server_with_oidc, accounts, dict(cookies))
        assert refused(await victim.post("/login/oidc/finish", given), "not begun in this browser")
    for state in ("", "x" * 43, "é", given["state"][:-1]):
        answer = await browser.post("/login/oidc/finish", {**given, "state": state})
        assert refused(answer, "not begun in this browser")
    for wrong in (None, 3, ["x"]):
        assert refused(await browser.post("/login/oidc/finish", {**given, "state": wrong}), "not begun in this browser")
    assert accounts.forms == []
    assert (await browser.post("/login/oidc/finish", given)).status == 200


async def test_authorization_code_can_be_used_only_once(browser, accounts):
    given, kept = await browser.begin(), dict(browser.cookies)
    assert (await browser.post("/login/oidc/finish", given)).status == 200
    browser.cookies = kept
    assert refused(await browser.post("/login/oidc/finish", given), "does not sign you in: invalid_grant")


async def test_stolen_authorization_code_is_refused(browser, server_with_oidc, accounts):
    stolen = await browser.begin()
    thief = Browser(server_with_oidc, accounts, {})
    own = await thief.begin()
    answer = await thief.post("/login/oidc/finish", {**own, "code": stolen["code"]})
    assert refused(answer, "invalid_grant")


async def test_callback_of_another_issuer_is_refused(browser, accounts, clock):
    given = await browser.begin()
    answer = await browser.post("/login/oidc/finish", {**given, "iss": "https://evil.example"})
    assert refused(answer, f"not from {accounts.url}")
    assert accounts.forms == []
    accounts.metadata["authorization_response_iss_parameter_supported"] = True
    clock.advance(601)
    given = await browser.begin()
    assert refused(await browser.post("/login/oidc/finish", {k: v for k, v in given.items() if k != "iss"}), "not from")
    assert (await browser.post("/login/oidc/finish", given)).status == 200


async def test_authorization_error_of_the_issuer_is_shown_on_one_line(browser):
    given = await browser.begin()
    answer = await browser.post("/login/oidc/finish", {"state": given["state"], "error": "access_denied\n<b>x</b>"})
    assert refused(answer, "does not sign you in: access_denied <b>x</b>")
    answer = await browser.post("/login/oidc/finish", {"state": given["state"]})
    assert (answer.status, answer.body["message"][:5]) == (400, "code:")


NOW = int(time.time())


NOT_MADE_FOR_THIS = (
    ({"nonce": "x" * 43}, "not of this sign-in"),
    ({"nonce": None}, "not of this sign-in"),
    ({"nonce": "\ud800"}, "not of this sign-in"),
    ({"exp": NOW - 90}, "expired"),
    ({"exp": None}, "exp"),
    ({"iat": NOW + 3600, "exp": NOW + 7200}, "not yet valid"),
    ({"nbf": NOW + 3600}, "not yet valid"),
    ({"iat": None}, "iat"),
    ({"aud": "kubernetes"}, "Audience"),
    ({"aud": None}, "aud"),
    ({"aud": [CLIENT_ID, "other"]}, "another client"),
    ({"aud": [CLIENT_ID, "other"], "azp": "other"}, "another client"),
    ({"azp": "other"}, "another client"),
    ({"iss": "https://evil.example"}, "issuer"),
    ({"iss": None}, "iss"),
    ({"sub": None}, "sub"),
    ({"groups": {"a": 1}}, "not a list of strings"),
    ({"groups": [1]}, "not a list of strings"),
)


async def test_id_token_with_invalid_claims_is_refused(browser, accounts, clock):
    for change, said in NOT_MADE_FOR_THIS:
        changed = {**change}
        accounts.changed = lambda claims, new=changed: {
            name: value for name, value in (claims | new).items() if value is not None
        }
        assert refused(await browser.sign_in(), said), change
        assert (await browser.session()).status == 401
        clock.advance(10)


async def test_id_token_times_may_be_off_by_30_seconds(browser, accounts):
    for name, seconds in (("exp", -30), ("iat", 30), ("nbf", 30)):
        accounts.changed = lambda claims, name=name, seconds=seconds: claims | {name: int(time.time()) + seconds}
        assert (await browser.sign_in()).status == 200


def _by_public_key(accounts: Issuer, claims: dict[str, Any]) -> str:
    """ID token that is signed by HS256 with the issuer's public RSA key as the shared secret."""
    pem = accounts.key.public_key().public_bytes(
        jwt.algorithms.Encoding.PEM, jwt.algorithms.PublicFormat.SubjectPublicKeyInfo
    )
    parts = jwt.encode(claims, "k" * 64, "HS256", {"kid": accounts.key_id}).rpartition(".")[0]
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(parts.encode(), pem)
    return f"{parts}.{jwt.utils.base64url_encode(signature).decode()}"


NOT_SIGNED_BY_IT = (
    (lambda _, claims: jwt.encode(claims, None, "none"), "algorithm 'none'"),
    (lambda accounts, claims: jwt.encode(claims, None, "none", {"kid": accounts.key_id}), "algorithm 'none'"),
    (_by_public_key, "algorithm 'HS256'"),
    (lambda accounts, claims: jwt.encode(claims, rsa_key(1), "RS256", {"kid": accounts.key_id}), "Signature"),
    (lambda _, claims: jwt.encode(claims, rsa_key(1), "RS256"), "Signature"),
    (lambda _, claims: jwt.encode(claims, rsa_key(1), "RS256", {"kid": "x"}), "does not publish"),
    (lambda accounts, claims: accounts.sign(claims)[:-6] + "AAAAAA", "Signature"),
    (lambda accounts, claims: jwt.encode(claims, accounts.key, "RS512", {"kid": accounts.key_id}), "'RS512'"),
    (lambda *_: "", "Not enough segments"),
    (lambda *_: "a.b.c", "is not accepted"),
    (lambda *_: "é", "is not accepted"),
)


async def test_id_token_with_an_invalid_signature_or_algorithm_is_refused(browser, accounts, clock):
    for signed, said in NOT_SIGNED_BY_IT:
        accounts.signed = lambda claims, sign=signed: sign(accounts, claims)
        assert refused(await browser.sign_in(), said), said
        clock.advance(10)


async def test_another_site_can_neither_begin_nor_finish_a_sign_in(server_with_oidc, browser, accounts):
    given = await browser.begin()
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        for path in ("/login/oidc", "/login/oidc/finish"):
            answer = await server_with_oidc.send("POST", path, given, headers={**OURS, **headers})
            assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)
    assert accounts.forms == []


async def test_sign_in_under_another_dashboard_url_names_the_configured_url(server_with_oidc):
    answer = await server_with_oidc.send("POST", "/login/oidc", {}, headers={**OURS, "Origin": server_with_oidc.url})
    assert (answer.status, f"open {DASHBOARD}/ui/" in answer.body["message"]) == (400, True)


async def test_sign_in_attempts_are_rate_limited(browser):
    statuses = [(await browser.post("/login/oidc/finish", {})).status for _ in range(21)]
    assert statuses == [403] * 20 + [429]
