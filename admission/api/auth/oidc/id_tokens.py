"""What an ID token says, if it is one that the issuer has made for this Sluice and this sign-in.

Rules: OpenID Connect Core 1.0, 3.1.3.7, and the `--oidc-*` flags of kube-apiserver
(https://kubernetes.io/docs/reference/access-authn-authz/authentication/#openid-connect-tokens), so that a person is the
same user here and for kubectl.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any, Final

import jwt

from admission.api.auth.authentication import Door
from admission.api.auth.outside_names import outside_user
from admission.api.errors import Forbidden

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.api.auth.authentication import Identity
    from admission.api.auth.oidc.client import OidcClient

_SKEW_SECONDS: Final = 60.0
"""By so much the clocks of issuer and Sluice may differ."""


class UnknownKey(Forbidden):
    """The token names a key that is not among the issuer's, as far as they are known."""


def verified(token: str, keys: Iterable[Mapping[str, Any]], client: OidcClient, *, nonce: str) -> dict[str, Any]:
    """The claims of an ID token. `keys` are the issuer's JWKs. Raises UnknownKey and Forbidden."""
    try:
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in client.algorithms:
            raise _refusal(client, f"it is signed by {algorithm!r:.40}, and oidc.signingAlgorithms has no such one")
        candidates = _candidates(keys, algorithm, header.get("kid"))
        if not candidates:
            raise UnknownKey(f"the ID token of {client.issuer} is signed by a key that the issuer does not publish")
        claims = _decoded(token, candidates, client)
    except jwt.PyJWTError as error:
        raise _refusal(client, str(error)) from error
    audience = claims["aud"]
    party = claims.get("azp")
    if (isinstance(audience, list) and len(audience) > 1 and party is None) or party not in (None, client.client_id):
        raise _refusal(client, "it was made for another client")
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(errors="replace"), nonce.encode()):
        raise _refusal(client, "it is not of this sign-in")
    for name, wanted in client.required_claims:
        if claims.get(name) != wanted:
            raise Forbidden(f"you may not sign in here: the claim {name} that {client.issuer} gives you is another one")
    return claims


def user(claims: Mapping[str, Any], client: OidcClient, *, source: str) -> Identity:
    """The user whom claims are about. Raises Forbidden."""
    name = claims.get(client.username_claim)
    if not isinstance(name, str) or not name:
        raise _refusal(client, f"its claim {client.username_claim} is no user name")
    if client.username_claim == "email" and claims.get("email_verified", True) is not True:
        raise Forbidden(f"you may not sign in here: {client.issuer} has not verified your e-mail address")
    found = claims.get(client.groups_claim, []) if client.groups_claim else []
    listed = [found] if isinstance(found, str) else found
    if not isinstance(listed, list) or not all(isinstance(group, str) for group in listed):
        raise _refusal(client, f"its claim {client.groups_claim} is no list of strings")
    groups = [client.groups_prefix + group for group in listed if group]
    return outside_user(client.username_prefix + name, groups, Door.OIDC, source=source)


def _candidates(keys: Iterable[Mapping[str, Any]], algorithm: str, key_id: object) -> list[jwt.PyJWK]:
    """The keys that may have made a signature."""
    found = []
    for key in keys:
        fits = key.get("use", "sig") == "sig" and key.get("alg", algorithm) == algorithm
        if not fits or (key_id is not None and key.get("kid") != key_id):
            continue
        try:
            found.append(jwt.PyJWK(dict(key), algorithm))
        except jwt.PyJWTError:  # of another type, or one that is not known here: the issuer may have those, too
            continue
    return found


def _decoded(token: str, candidates: list[jwt.PyJWK], client: OidcClient) -> dict[str, Any]:
    """Raises PyJWTError."""
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
