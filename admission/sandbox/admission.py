"""Dynamic admission: which webhooks are asked about a request, how they are called, and what their answers do."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from admission.sandbox import errors
from admission.sandbox.cel import MATCH_VARIABLES, CelError, compile_expression, evaluate
from admission.sandbox.decoding import complete
from admission.sandbox.objects import labels_of
from admission.sandbox.patch import json_patch
from admission.sandbox.schema import DecodeError
from admission.sandbox.selectors import requirements_of

if TYPE_CHECKING:
    import cel

    from admission.machinery.selectors import Requirement
    from admission.sandbox.objects import Object
    from admission.sandbox.registry import Call, Registry
    from admission.sandbox.resources import Resource

GROUP = "admissionregistration.k8s.io"


@dataclass(frozen=True, slots=True, eq=False)
class Hook:
    """One webhook of a configuration, ready to be matched."""

    name: str
    spec: Object
    namespaces: tuple[Requirement, ...]
    objects: tuple[Requirement, ...]
    conditions: tuple[tuple[str, cel.Program], ...]

    @property
    def fails_closed(self) -> bool:
        return bool(self.spec["failurePolicy"] == "Fail")


@dataclass(frozen=True, slots=True)
class Review:
    """A request as webhooks see it, but for the object that they may change."""

    resource: Resource
    subresource: str
    operation: str
    name: str
    namespace: str
    old: Object | None
    call: Call

    def body(self, new: Object | None) -> Object:
        """The AdmissionReview to send; its uid is fresh."""
        resource = self.resource
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        target = {"group": resource.group, "version": resource.version, "resource": resource.plural}
        request: Object = {"uid": str(uuid.uuid4()), "kind": kind, "resource": target}
        if self.subresource:
            request["subResource"] = self.subresource
        request["requestKind"] = kind
        request["requestResource"] = target
        if self.subresource:
            request["requestSubResource"] = self.subresource
        if self.name:
            request["name"] = self.name
        if self.namespace:
            request["namespace"] = self.namespace
        request["operation"] = self.operation
        request["userInfo"] = self.call.user.info()
        request["object"] = new
        request["oldObject"] = self.old
        request["dryRun"] = self.call.dry_run
        request["options"] = self.call.options
        return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


class HookFailed(errors.SandboxError):
    """A webhook could not be asked, or its answer is none."""


class Webhooks:
    """All registered webhooks."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._mutating: list[Hook] = []
        self._validating: list[Hook] = []
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    def reload(self) -> None:
        """Read the configurations again, after one changed."""
        self._mutating = self._read("mutatingwebhookconfigurations")
        self._validating = self._read("validatingwebhookconfigurations")

    def _read(self, plural: str) -> list[Hook]:
        configurations = self._registry.store.collections[GROUP, plural].versions()
        return [_hook(spec) for version in configurations for spec in version.obj.get("webhooks", ())]

    # ------------------------------------------------------------------ the three occasions

    async def mutate(
        self, resource: Resource, subresource: str, operation: str, new: Object, old: Object | None, call: Call
    ) -> Object:
        """What the mutating webhooks make of the object. Raises ApiError."""
        if not self._mutating:
            return new
        name = (old or new)["metadata"].get("name", "")
        review = Review(resource, subresource, operation, name, _namespace(resource, old or new), old, call)
        again: list[Hook] = []
        called: list[Hook] = []
        for hook in self._mutating:
            if not self._matches(hook, review, new):
                continue
            changed = await self._mutate_once(hook, review, new)
            if changed is not new:
                again += [earlier for earlier in called if earlier not in again]
                new = changed
            if hook.spec.get("reinvocationPolicy") == "IfNeeded":
                called.append(hook)
        for hook in again:
            if self._matches(hook, review, new):
                new = await self._mutate_once(hook, review, new)
        return new

    async def validate(
        self, resource: Resource, subresource: str, operation: str, new: Object | None, old: Object | None, call: Call,
        *, named: bool = True,
    ) -> None:  # fmt: skip
        """Ask all validating webhooks at once; the first denial, in their order, is raised as ApiError."""
        if not self._validating:
            return
        known = new if new is not None else old
        assert known is not None
        name = known["metadata"].get("name", "") if named else ""
        review = Review(resource, subresource, operation, name, _namespace(resource, known), old, call)
        hooks = [hook for hook in self._validating if self._matches(hook, review, new)]
        if not hooks:
            return
        results = await asyncio.gather(
            *(self._validate_once(hook, review, new) for hook in hooks), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def review_delete(self, resource: Resource, old: Object, call: Call, *, named: bool) -> None:
        """Ask both kinds of webhooks about a deletion. Raises ApiError."""
        if self._mutating:
            name = old["metadata"]["name"] if named else ""
            review = Review(resource, "", "DELETE", name, _namespace(resource, old), old, call)
            for hook in self._mutating:
                if self._matches(hook, review, None):
                    await self._answer(hook, review, None)
        await self.validate(resource, "", "DELETE", None, old, call, named=named)

    # ------------------------------------------------------------------ matching

    def _matches(self, hook: Hook, review: Review, new: Object | None) -> bool:
        resource = review.resource
        if resource.group == GROUP or not any(_rule_matches(rule, review) for rule in hook.spec.get("rules", ())):
            return False
        if hook.namespaces and not self._namespace_matches(hook, review, new):
            return False
        if hook.objects and not any(
            all(requirement.holds(labels_of(obj)) for requirement in hook.objects)
            for obj in (new, review.old)
            if obj is not None
        ):
            return False
        return not hook.conditions or _conditions_hold(hook, review, new)

    def _namespace_matches(self, hook: Hook, review: Review, new: Object | None) -> bool:
        if review.namespace:
            found = self._registry.find("", "namespaces", "", review.namespace)
        elif review.resource.key == ("", "namespaces"):
            found = new or review.old
        else:
            return True
        labels = labels_of(found) if found else {}
        return all(requirement.holds(labels) for requirement in hook.namespaces)

    # ------------------------------------------------------------------ calling

    async def _mutate_once(self, hook: Hook, review: Review, new: Object) -> Object:
        response = await self._answer(hook, review, new)
        patch = response.get("patch") if response else None
        if not patch:
            return new
        try:
            operations = orjson.loads(base64.b64decode(patch, validate=True))
        except (orjson.JSONDecodeError, binascii.Error) as error:
            raise errors.internal(
                f'failed calling webhook "{hook.name}": received undecodable patch: {error}'
            ) from error
        try:
            changed: Object = json_patch(new, operations)
            review.resource.schema.decode(changed, new, [])
        except (errors.ApiError, DecodeError, TypeError) as error:
            raise errors.internal(f"the patch of webhook {hook.name} cannot be applied: {error}") from error
        changed = complete(review.resource, changed)
        return new if changed == new else changed

    async def _validate_once(self, hook: Hook, review: Review, new: Object | None) -> None:
        await self._answer(hook, review, new)

    async def _answer(self, hook: Hook, review: Review, new: Object | None) -> Object | None:
        """The response of an allowing webhook; None if its failure is ignored. Raises ApiError."""
        mutating = "reinvocationPolicy" in hook.spec
        try:
            response = await self._call(hook, review.body(new), mutating=mutating)
        except HookFailed as error:
            if hook.fails_closed:
                raise errors.internal(f'failed calling webhook "{hook.name}": {error}') from error
            return None
        review.call.warnings += response.get("warnings") or []
        if not response.get("allowed"):
            raise _denial(hook.name, response.get("status") or {})
        return response

    async def _call(self, hook: Hook, body: Object, *, mutating: bool) -> Object:
        client = hook.spec["clientConfig"]
        url = client.get("url")
        if not url:
            service = client.get("service", {})
            raise HookFailed(f'failed to call webhook: service "{service.get("name")}" not found')
        seconds = hook.spec["timeoutSeconds"]
        session = self._session(client.get("caBundle", ""))
        try:
            async with asyncio.timeout(seconds):
                async with session.post(
                    url, params={"timeout": f"{seconds}s"}, data=orjson.dumps(body),
                    headers={"Content-Type": "application/json"},
                ) as answer:  # fmt: skip
                    if answer.status != 200:
                        raise HookFailed(f"failed to call webhook: the server answered {answer.status}")
                    review = orjson.loads(await answer.read())
        except TimeoutError as error:
            raise HookFailed("failed to call webhook: context deadline exceeded") from error
        except (aiohttp.ClientError, OSError) as error:
            raise HookFailed(f"failed to call webhook: {error}") from error
        except orjson.JSONDecodeError as error:
            raise HookFailed("failed to call webhook: couldn't decode the response") from error
        return _checked(review, body["request"]["uid"], mutating=mutating)

    def _session(self, ca_bundle: str) -> aiohttp.ClientSession:
        """A session that trusts the bundle; it keeps its connections."""
        session = self._sessions.get(ca_bundle)
        if session is None:
            context = ssl.create_default_context()
            if ca_bundle:
                context = ssl.create_default_context(cadata=base64.b64decode(ca_bundle).decode())
            connector = aiohttp.TCPConnector(ssl=context, limit=64, keepalive_timeout=60)
            session = self._sessions[ca_bundle] = aiohttp.ClientSession(connector=connector)
        return session


def _hook(spec: Object) -> Hook:
    conditions = tuple(
        (condition["expression"], compile_expression(condition["expression"], MATCH_VARIABLES))
        for condition in spec.get("matchConditions", ())
    )
    namespaces, objects = spec.get("namespaceSelector", {}), spec.get("objectSelector", {})
    return Hook(spec["name"], spec, requirements_of(namespaces), requirements_of(objects), conditions)


def _namespace(resource: Resource, obj: Object) -> str:
    if resource.key == ("", "namespaces"):
        return ""
    namespace: str = obj["metadata"].get("namespace", "")
    return namespace


def _rule_matches(rule: Object, review: Review) -> bool:
    resource = review.resource
    if not _named(rule["operations"], review.operation) or not _named(rule["apiGroups"], resource.group):
        return False
    if not _named(rule["apiVersions"], resource.version):
        return False
    scope = rule.get("scope", "*")
    if scope != "*" and (scope == "Namespaced") != resource.namespaced:
        return False
    return any(_resource_matches(pattern, resource.plural, review.subresource) for pattern in rule["resources"])


def _named(patterns: list[str], name: str) -> bool:
    return "*" in patterns or name in patterns


def _resource_matches(pattern: str, plural: str, subresource: str) -> bool:
    parent, slash, sub = pattern.partition("/")
    if parent not in ("*", plural):
        return False
    if not slash:
        return not subresource
    return sub in ("*", subresource)


def _conditions_hold(hook: Hook, review: Review, new: Object | None) -> bool:
    """All match conditions; an error counts only if none is false. Raises ApiError for it, or passes the hook by."""
    request = review.body(None)["request"]
    values = {"object": new, "oldObject": review.old, "request": {k: v for k, v in request.items() if v is not None}}
    failed: tuple[str, CelError] | None = None
    for text, program in hook.conditions:
        try:
            if not evaluate(program, values):
                return False
        except CelError as error:
            failed = failed or (text, error)
    if failed is None:
        return True
    if hook.fails_closed:
        text, fault = failed
        name = (new or review.old or {}).get("metadata", {}).get("name", "")
        message = f"{review.resource.qualified} \"{name}\" is forbidden: expression '{text}' resulted in error: {fault}"
        raise errors.denied(message, review.resource, name) from fault
    return False


def _checked(review: Any, uid: str, *, mutating: bool) -> Object:
    """The response in an AdmissionReview. Raises HookFailed when it is no proper one."""
    if not isinstance(review, dict):
        raise HookFailed("received invalid webhook response: no object")
    kind, version = review.get("kind", ""), review.get("apiVersion", "")
    if (kind, version) != ("AdmissionReview", "admission.k8s.io/v1"):
        raise HookFailed(f"received invalid webhook response: expected AdmissionReview, got {version}, Kind={kind}")
    response = review.get("response")
    if not isinstance(response, dict):
        raise HookFailed("received invalid webhook response: webhook response was absent")
    if response.get("uid") != uid:
        raise HookFailed(
            f'received invalid webhook response: expected response.uid="{uid}", got "{response.get("uid")}"'
        )
    has_patch = bool(response.get("patch"))
    if has_patch and (not mutating or response.get("patchType") != "JSONPatch"):
        text = "patchType must be JSONPatch" if mutating else "may not contain a patch"
        raise HookFailed(f"received invalid webhook response: {text}")
    return response


def _denial(name: str, status: Object) -> errors.ApiError:
    message, reason = status.get("message", ""), status.get("reason", "")
    text = f'admission webhook "{name}" denied the request'
    text += f": {message or reason}" if message or reason else " without explanation"
    code = status.get("code", 0)
    return errors.ApiError(max(code, 400), reason, text, details=status.get("details") or {})
