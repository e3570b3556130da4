"""Validation of ID tokens, and the user that their claims describe.

Rules: OpenID Connect Core 1.0, 3.1.3.7, and the `--oidc-*` flags of kube-apiserver
(https://kubernetes.io/docs/reference/access-authn-authz/authentication/#openid-connect-tokens), so that a person has
the same user name and groups here and with kubectl.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any, Final

import jwt

from admission.api.auth.identity import AuthMethod, external_user
from admission.api.errors import Forbidden

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.api.auth.identity import Identity
    from admission.api.auth.oidc.client import OidcClient

_SKEW_SECONDS: Final = 60.0
"""Tolerated difference between the clocks of the issuer and of Sluice."""


class UnknownKey(Forbidden):
    """The token is signed by a key that is not in the issuer's key set, as last read: it may have been rotated."""


def verified(token: str, keys: Iterable[Mapping[str, Any]], client: OidcClient, *, nonce: str) -> dict[str, Any]:
    """Validate an ID token and return its claims. Raises UnknownKey and Forbidden.

    `keys` are the issuer's JWKs, `nonce` is that of this sign-in.
    """
    try:
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in client.algorithms:
            raise _refusal(client, f"its signature algorithm {algorithm!r:.40} is not in oidc.signingAlgorithms")
        candidates = _candidates(keys, algorithm, header.get("kid"))
        if not candidates:
            raise UnknownKey(f"the ID token of {client.issuer} is signed by a key that the issuer does not publish")
        claims = _decoded(token, candidates, client)
    except jwt.PyJWTError as error:
        raise _refusal(client, str(error)) from error
    audience = claims["aud"]
    party = claims.get("azp")
    if (isinstance(audience, list) and len(audience) > 1 and party is None) or party not in (None, client.client_id):
        raise _refusal(client, "it was issued to another client")
    claimed = claims.get("nonce")
    if not isinstance(claimed, str) or not hmac.compare_digest(claimed.encode(errors="replace"), nonce.encode()):
        raise _refusal(client, "it is not of this sign-in (its nonce differs)")
    for name, required in client.required_claims:
        if claims.get(name) != required:
            raise Forbidden(
                f"you may not sign in here: {client.issuer} does not give you the required value of the claim {name}"
            )
    return claims


def user(claims: Mapping[str, Any], client: OidcClient, *, source: str) -> Identity:
    """Return the user that validated claims describe. `source` is the client's address. Raises Forbidden."""
    name = claims.get(client.username_claim)
    if not isinstance(name, str) or not name:
        raise _refusal(client, f"its claim {client.username_claim} is not a user name")
    if client.username_claim == "email" and claims.get("email_verified", True) is not True:
        raise Forbidden(f"you may not sign in here: {client.issuer} has not verified your e-mail address")
    found = claims.get(client.groups_claim, []) if client.groups_claim else []
    listed = [found] if isinstance(found, str) else found
    if not isinstance(listed, list) or not all(isinstance(group, str) for group in listed):
        raise _refusal(client, f"its claim {client.groups_claim} is not a list of strings")
    groups = [client.groups_prefix + group for group in listed if group]
    return external_user(client.username_prefix + name, groups, AuthMethod.OIDC, source=source)


def _candidates(keys: Iterable[Mapping[str, Any]], algorithm: str, key_id: object) -> list[jwt.PyJWK]:
    """Return the keys that fit a token's algorithm and key id."""
    found = []
    for key in keys:
        fits = key.get("use", "sig") == "sig" and key.get("alg", algorithm) == algorithm
        if not fits or (key_id is not None and key.get("kid") != key_id):
            continue
        try:
            found.append(jwt.PyJWK(dict(key), algorithm))
        except jwt.PyJWTError:  # a key of another or an unsupported type: an issuer may publish those, too
            continue
    return found


def _decoded(token: str, candidates: list[jwt.PyJWK], client: OidcClient) -> dict[str, Any]:
    """Return the claims if one of the candidates has signed the token. Raises PyJWTError."""
    *others, last = candidates
    for key in [*others, last]:
        try:
            return jwt.decode(
                token,
                key,
                algorithms=list(client.algorithms),
                audience=client.client_id,
                issuer=client.issuer,
                leeway=_SKEW_SECONDS,
                options={"require": ["iss", "sub", "aud", "exp", "iat"]},
            )
        except jwt.InvalidSignatureError:
            if key is last:
                raise
    raise AssertionError("unreachable")


def _refusal(client: OidcClient, why: str) -> Forbidden:
    return Forbidden(f"the ID token of {client.issuer} is not accepted: {why}")
