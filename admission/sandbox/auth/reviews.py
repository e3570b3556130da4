"""Token and access reviews: virtual resources that are evaluated on creation and not stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.apiserver import errors
from admission.sandbox.apiserver.errors import bad_request, invalid
from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.rbac import RequestAttributes
from admission.sandbox.auth.users import AUDIENCE

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry
    from admission.sandbox.auth.rbac import Authorizer
    from admission.sandbox.auth.users import Authenticator

AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"

# (group, plural): (kind, namespaced)
REVIEWS: dict[tuple[str, str], tuple[str, bool]] = {
    (AUTHENTICATION, "selfsubjectreviews"): ("SelfSubjectReview", False),
    (AUTHENTICATION, "tokenreviews"): ("TokenReview", False),
    (AUTHORIZATION, "localsubjectaccessreviews"): ("LocalSubjectAccessReview", True),
    (AUTHORIZATION, "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", False),
    (AUTHORIZATION, "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", False),
    (AUTHORIZATION, "subjectaccessreviews"): ("SubjectAccessReview", False),
}


class Reviews:
    """Evaluates reviews."""

    def __init__(self, registry: ObjectRegistry, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._registry = registry
        self._authenticator = authenticator
        self._authorizer = authorizer

    def answer(self, group: str, plural: str, user: User, body: Object) -> Object:
        """Return the review with its status. Raises ApiError."""
        kind, _ = REVIEWS[group, plural]
        if body.get("kind", kind) != kind:
            raise bad_request(f'{body["kind"]} in version "v1" cannot be handled as a {kind}')
        spec = body.get("spec") or {}
        answer: Object = {"kind": kind, "apiVersion": f"{group}/v1", "metadata": body.get("metadata") or {}}
        if plural == "selfsubjectreviews":
            answer["metadata"] = {"creationTimestamp": self._registry.now()}
            return {**answer, "status": {"userInfo": user.info()}}
        answer["spec"] = spec
        match plural:
            case "tokenreviews":
                answer["status"] = self._token(spec)
            case "selfsubjectrulesreviews":
                answer["status"] = self._rules(user, spec.get("namespace", ""))
            case "selfsubjectaccessreviews":
                answer["status"] = self._access(user, spec)
            case _:
                answer["status"] = self._access(_subject(spec), spec)
        return answer

    def _token(self, spec: Object) -> Object:
        token = spec.get("token", "")
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        for audience in spec.get("audiences") or [AUDIENCE]:
            user = self._authenticator.user(token, audience)
            if user is not None:
                return {"authenticated": True, "user": user.info(), "audiences": [audience]}
        return {"user": {}, "error": "invalid bearer token"}

    def _access(self, user: User, spec: Object) -> Object:
        reason = self._authorizer.reason(user, _attributes(spec))
        if reason is None:
            return {"allowed": False}
        return {"allowed": True, "reason": reason} if reason else {"allowed": True}

    def _rules(self, user: User, namespace: str) -> Object:
        if not namespace:
            raise bad_request("no namespace on request")
        rules = self._authorizer.rules(user, namespace)
        return {
            "resourceRules": [rule for rule in rules if "resources" in rule],
            "nonResourceRules": [rule for rule in rules if "nonResourceURLs" in rule],
            "incomplete": False,
        }


def _subject(spec: Object) -> User:
    name, groups = spec.get("user", ""), spec.get("groups") or []
    if not name and not groups:
        raise _refused(invalid("spec.user", "", "at least one of user or group must be specified"))
    return User(name, spec.get("uid", ""), tuple(groups))


def _attributes(spec: Object) -> RequestAttributes:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _refused(invalid("spec.resourceAttributes", "null", text))
    if resource is None:
        assert path is not None
        return RequestAttributes(path.get("verb", ""), path=path.get("path", ""))
    plural, sub = resource.get("resource", ""), resource.get("subresource", "")
    return RequestAttributes(
        resource.get("verb", ""),
        resource.get("group", ""),
        f"{plural}/{sub}" if sub else plural,
        resource.get("namespace", ""),
        resource.get("name", ""),
    )


def _refused(cause: errors.Cause) -> errors.ApiError:
    return errors.unprocessable(AUTHORIZATION, "", "", [cause])
