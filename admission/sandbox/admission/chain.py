"""Admission chain: policies, then webhooks, which are called over HTTPS, with the configurations that are in force."""

from __future__ import annotations

import asyncio
import base64
import binascii
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
from yarl import URL

from admission.sandbox.admission.matching import (
    ConditionFailed,
    Conditions,
    Constraints,
    Review,
    conditions_match,
    conditions_of,
)
from admission.sandbox.admission.policies import Policies
from admission.sandbox.apiserver import errors
from admission.sandbox.apiserver.decoding import complete
from admission.sandbox.apiserver.patch import json_patch
from admission.sandbox.apiserver.scale import scale_of
from admission.sandbox.apiserver.schema import DecodeError
from admission.sandbox.service_addresses import host_of
from admission.serving.outgoing import client_connector, client_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry
    from admission.sandbox.apiserver.requests import Call
    from admission.sandbox.apiserver.resources import ServedResource


class ConfiguredAdmission:
    """Admission by the stored configurations; `delay`: seconds until a written one is in force."""

    def __init__(self, registry: ObjectRegistry, *, delay: float) -> None:
        self._webhooks = Webhooks(registry, self.in_force)
        self._policies = Policies(registry, self.in_force)
        self._of_operators: list[tuple[ServedResource, Callable[[Object], Object]]] = []
        self._fixed: list[tuple[ServedResource, str, Callable[[Object, bool], object]]] = []
        self._delay = delay
        self._written: dict[tuple[str, str], Object] = {}
        self._in_force: dict[tuple[str, str], Object] = {}

    async def close(self) -> None:
        """Close the connections to webhook servers."""
        await self._webhooks.close()

    def in_force(self, kind: str) -> list[Object]:
        """Return the webhook configurations, policies or bindings of a kind that are in force, ordered by name."""
        return [obj for (known, _), obj in sorted(self._in_force.items(), key=itemgetter(0)) if known == kind]

    def configuration_changed(self, new: Object | None, old: Object | None) -> None:
        """Receive a write: a stored configuration is in force after the delay, a deleted one no longer, immediately.

        That is the worst case of a cluster, whose API servers learn of both through watches.
        """
        obj = new or old
        assert obj is not None
        key = obj["kind"], obj["metadata"]["name"]
        if new is None:
            self._written.pop(key, None)
            self._in_force.pop(key, None)
            self._reload()
            return
        self._written[key] = new
        if self._delay:
            asyncio.get_running_loop().call_later(self._delay, self._put_in_force, key)
        else:
            self._put_in_force(key)

    def _put_in_force(self, key: tuple[str, str]) -> None:
        if key in self._written:
            self._in_force[key] = self._written[key]
            self._reload()

    def _reload(self) -> None:
        self._webhooks.reload()
        self._policies.reload()

    @contextmanager
    def mutating_new(self, resource: ServedResource, change: Callable[[Object], Object]) -> Iterator[None]:
        """Pass new objects of a resource through a function before webhooks during the block."""
        own = resource, change
        self._of_operators.append(own)
        try:
            yield
        finally:
            self._of_operators.remove(own)

    @contextmanager
    def refusing_changes(
        self, resource: ServedResource, field: str, part: Callable[[Object, bool], object]
    ) -> Iterator[None]:
        """Refuse updates of a resource that change a part of it during the block, after webhooks have mutated them.

        `field`: name of that part. `part` returns it; its second argument is whether the object is, or was, suspended.
        """
        own = resource, field, part
        self._fixed.append(own)
        try:
            yield
        finally:
            self._fixed.remove(own)

    async def mutate(
        self, resource: ServedResource, subresource: str, operation: str, new: Object, old: Object | None, call: Call
    ) -> Object:
        """Return the object after mutating policies and webhooks. Raises ApiError.

        If a webhook changed it, policies with reinvocationPolicy IfNeeded run again. A Scale is not mutated.
        """
        if subresource == "scale":
            return new
        review = Review.of(resource, subresource, operation, old or new, old, call)
        new = self._policies.mutate(review, new)
        for admitted, change in self._of_operators if operation == "CREATE" and not subresource else ():
            new = change(new) if admitted is resource else new
        changed = await self._webhooks.mutate(review, new)
        if changed is new:
            return new
        return self._policies.mutate(review, changed, again=True)

    async def validate(
        self, resource: ServedResource, subresource: str, operation: str, new: Object, old: Object | None, call: Call
    ) -> None:
        """Run validating policies and webhooks. Raises ApiError if one denies the request.

        Of a request to the scale subresource they see the Scale, not the object.
        """
        if subresource == "scale" and old is not None:
            new, old = scale_of(resource, new), scale_of(resource, old)
        review = Review.of(resource, subresource, operation, new, old, call)
        self._policies.validate(review, new)
        await self._webhooks.validate(review, new)
        for fixed, field, part in self._fixed if old is not None and not subresource else ():
            if fixed is resource and _has_changed(part, new, old):
                cause = errors.forbidden(field, "field is immutable")
                raise errors.unprocessable(resource.group, resource.kind, new["metadata"]["name"], [cause])

    async def review_delete(self, resource: ServedResource, old: Object, call: Call, *, named: bool) -> None:
        """Run validating policies, and webhooks of both kinds, for a deletion. Raises ApiError if one denies it."""
        review = Review.of(resource, "", "DELETE", old, old, call, named=named)
        self._policies.validate(review, None)
        await self._webhooks.review_delete(review)


def _has_changed(part: Callable[[Object, bool], object], new: Object, old: Object | None) -> bool:
    """Whether two versions differ in a part; one that has no such part is not an operator's webhook's to judge."""
    assert old is not None
    try:
        suspended = any(each["spec"].get("suspend") is True for each in (new, old))
        return part(new, suspended) != part(old, suspended)
    except (AttributeError, KeyError, TypeError):
        return False


@dataclass(frozen=True, slots=True, eq=False)
class Hook:
    """One webhook of a configuration; its match conditions are compiled."""

    name: str
    spec: Object
    constraints: Constraints
    conditions: Conditions

    @property
    def fails_closed(self) -> bool:
        return bool(self.spec["failurePolicy"] == "Fail")


class HookFailed(errors.SandboxError):
    """A webhook could not be called, or its response is invalid."""


class Webhooks:
    """All webhooks that are in force."""

    def __init__(self, registry: ObjectRegistry, in_force: Callable[[str], list[Object]]) -> None:
        self._registry = registry
        self._in_force = in_force
        self._mutating: list[Hook] = []
        self._validating: list[Hook] = []
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    def reload(self) -> None:
        """Read the webhook configurations again after one changed."""
        self._mutating = self._read("MutatingWebhookConfiguration")
        self._validating = self._read("ValidatingWebhookConfiguration")

    def _read(self, kind: str) -> list[Hook]:
        return [_hook(spec) for obj in self._in_force(kind) for spec in obj.get("webhooks", ())]

    # ------------------------------------------------------------------ mutation, validation, deletion

    async def mutate(self, review: Review, new: Object) -> Object:
        """Return the object after the mutating webhooks. Raises ApiError.

        A webhook with reinvocationPolicy IfNeeded is called once more if a later one changed the object.
        """
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

    async def validate(self, review: Review, new: Object | None) -> None:
        """Call all validating webhooks concurrently. Raises ApiError for the first denial in their order."""
        hooks = [hook for hook in self._validating if self._matches(hook, review, new)]
        if not hooks:
            return
        results = await asyncio.gather(
            *(self._validate_once(hook, review, new) for hook in hooks), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def review_delete(self, review: Review) -> None:
        """Call mutating and validating webhooks for a deletion. Raises ApiError."""
        for hook in self._mutating:
            if self._matches(hook, review, None):
                await self._answer(hook, review, None)
        await self.validate(review, None)

    # ------------------------------------------------------------------ matching

    def _matches(self, hook: Hook, review: Review, new: Object | None) -> bool:
        if not hook.constraints.match(self._registry, review, new):
            return False
        try:
            return conditions_match(hook.conditions, review, new)
        except ConditionFailed as error:
            if not hook.fails_closed:
                return False
            name = review.subject(new)
            message = f'{review.resource.qualified} "{name}" is forbidden: {error}'
            raise errors.denied(message, review.resource, name) from error

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
        """Return the response of a webhook that allows the request; None if its failure is ignored. Raises ApiError."""
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
        url, server_name = self._address(client)
        seconds = hook.spec["timeoutSeconds"]
        session = self._session(client.get("caBundle", ""))
        try:
            async with asyncio.timeout(seconds):
                async with session.post(
                    url, params={"timeout": f"{seconds}s"}, data=orjson.dumps(body),
                    headers={"Content-Type": "application/json"}, server_hostname=server_name,
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

    def _address(self, client: Object) -> tuple[URL, str | None]:
        """Return the URL to call, and the server name of its certificate (None: the URL's host). Raises HookFailed."""
        if client.get("url"):
            return URL(client["url"]), None
        wanted = client["service"]
        name, namespace = wanted.get("name", ""), wanted.get("namespace", "")
        service = self._registry.find("", "services", namespace, name)
        if service is None:
            raise HookFailed(f'failed to call webhook: service "{name}" not found')
        host = host_of(service)
        if not host:
            raise HookFailed(f'failed to call webhook: no endpoints available for service "{name}"')
        url = URL.build(scheme="https", host=host, port=wanted["port"], path=wanted.get("path") or "/")
        return url, f"{name}.{namespace}.svc"

    def _session(self, ca_bundle: str) -> aiohttp.ClientSession:
        """Return the session that trusts the bundle (base64 of PEM); it reuses its connections."""
        session = self._sessions.get(ca_bundle)
        if session is None:
            bundle = base64.b64decode(ca_bundle).decode() if ca_bundle else None
            context = client_context(ca_data=bundle)
            connector = client_connector(context, limit=64, keepalive=60)
            session = self._sessions[ca_bundle] = aiohttp.ClientSession(connector=connector)
        return session


def _hook(spec: Object) -> Hook:
    return Hook(spec["name"], spec, Constraints.of(spec, spec.get("rules", ())), conditions_of(spec))


def _checked(review: Any, uid: str, *, mutating: bool) -> Object:
    """Return the response of an AdmissionReview. Raises HookFailed if it is invalid."""
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
