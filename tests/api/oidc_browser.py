"""Sign-in at an issuer for tests: the client's settings, a browser, and checks of refusals."""

from __future__ import annotations

from dataclasses import dataclass
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from api_and_cluster import ApiAndCluster
from api_client import Answer

from admission.api.auth.oidc.client import OidcClient
from tests.oidc_issuer import CLIENT_ID, Issuer

OURS = {"X-Requested-With": "sluice", "Sec-Fetch-Site": "same-origin"}
DASHBOARD = "https://sluice.example"
SESSION = "__Host-sluice-session"


def client_of(accounts: Issuer, **settings: Any) -> OidcClient:
    given = {"username_prefix": "oidc:", "groups_claim": "groups", "groups_prefix": "oidc:"} | settings
    return OidcClient(
        issuer=accounts.url,
        client_id=CLIENT_ID,
        url=DASHBOARD,
        session_seconds=3600.0,
        client_secret_file=accounts.secret_file,
        ca_file=accounts.ca_file,
        **given,
    )


@dataclass
class Browser:
    """Browser of a user who signs in; keeps its cookies."""

    server: ApiAndCluster
    accounts: Issuer
    cookies: dict[str, str]

    async def post(self, path: str, document: Any) -> Answer:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = await self.server.send("POST", path, document, headers={**OURS, "Cookie": cookie})
        for set_cookie in answer.headers.getall("Set-Cookie", []):
            for name, morsel in SimpleCookie(set_cookie).items():
                self.cookies[name] = morsel.value
        return answer

    async def begin(self) -> dict[str, str]:
        """Start a sign-in, and return the parameters with which the issuer would redirect the browser back."""
        answer = await self.post("/login/oidc", {})
        assert answer.status == 200, answer.body
        query = dict(parse_qsl(urlsplit(answer.body["location"]).query))
        code = f"code-{len(self.accounts.forms)}-{len(self.accounts.codes)}"
        self.accounts.codes[code] = query
        return {"code": code, "state": query["state"], "iss": self.accounts.url}

    async def sign_in(self) -> Answer:
        return await self.post("/login/oidc/finish", await self.begin())

    async def session(self) -> Answer:
        return await self.server.send(
            "GET",
            "/session",
            headers={"Cookie": f"__Host-sluice-session={self.cookies.get('__Host-sluice-session', '')}"},
        )


def refused(answer: Answer, said: str) -> bool:
    assert "Set-Cookie" not in answer.headers
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    assert said in answer.body["message"], answer.body["message"]
    assert "\n" not in answer.body["message"]
    return True


def unusable(answer: Answer, accounts: Issuer) -> bool:
    assert (answer.status, answer.body["reason"]) == (503, "ServiceUnavailable")
    assert answer.body["message"].startswith(f"the issuer {accounts.url} cannot be used for now; sign in with a token")
    return True
