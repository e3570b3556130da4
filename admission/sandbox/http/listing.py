"""Lists: current or at an earlier resourceVersion, in chunks (`limit`, `continue`), filtered by selectors."""

from __future__ import annotations

import asyncio
import base64
import binascii
from bisect import bisect_right
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import orjson

from admission.sandbox.apiserver import errors
from admission.sandbox.apiserver.errors import ApiError, Cause, bad_request, forbidden, unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.sandbox.apiserver.query import Query
    from admission.sandbox.apiserver.selectors import ObjectSelector
    from admission.sandbox.apiserver.storage import ObjectVersion, StoredCollection

# Seconds of real time that a request for a future resourceVersion waits before it gets 504, as in kube-apiserver.
FUTURE_WAIT = 3.0
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results."
)


@dataclass(frozen=True, slots=True)
class ListPage:
    """One chunk of a list. `token` is its continue token, `remaining` the remainingItemCount or None if unknown."""

    versions: list[ObjectVersion]
    rv: int
    token: str = ""
    remaining: int | None = None

    def metadata(self) -> dict[str, object]:
        """Return the metadata of the list object."""
        found: dict[str, object] = {"resourceVersion": str(self.rv)}
        if self.token:
            found["continue"] = self.token
        if self.remaining is not None:
            found["remainingItemCount"] = self.remaining
        return found


async def list_page(
    collection: StoredCollection, namespace: str | None, selector: ObjectSelector, query: Query
) -> ListPage:
    """Return the chunk of objects that a list request selects. Raises ApiError."""
    _check(query)
    limit = max(query.integer("limit") or 0, 0)
    start: tuple[str, str] | None = None
    rv: int | None = None
    token = query.get("continue")
    if token:
        if query.get("resourceVersion") not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        rv, start = _decode_token(token, namespace)
    elif query.get("resourceVersionMatch") == "Exact":
        rv = _version(query)
    elif query.get("resourceVersion"):
        await wait_for(collection, _version(query))
    at = collection.store.revision if rv is None else rv
    versions = _versions(collection, namespace, rv, start)
    first = 0 if start is None else bisect_right(versions, start, key=_key)
    return _cut(versions, first, selector, limit, at, namespace)


def _check(query: Query) -> None:
    match, rv = query.get("resourceVersionMatch"), query.get("resourceVersion")
    causes: list[Cause] = []
    if match:
        if not rv:
            causes.append(
                forbidden(
                    "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
                )
            )
        elif match not in ("Exact", "NotOlderThan"):
            causes.append(unsupported("resourceVersionMatch", match, ("Exact", "NotOlderThan", "")))
        elif match == "Exact" and rv == "0":
            text = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            causes.append(forbidden("resourceVersionMatch", text))
    if query.get("sendInitialEvents"):
        causes.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if causes:
        raise errors.unprocessable("meta.k8s.io", "ListOptions", "", causes)


def _version(query: Query) -> int:
    text = query.get("resourceVersion")
    if not (text.isascii() and text.isdecimal()) or len(text) > 20:
        raise bad_request(f'invalid resource version: resourceVersion: Invalid value: "{text}": invalid syntax')
    return int(text)


async def wait_for(collection: StoredCollection, rv: int) -> None:
    """Wait FUTURE_WAIT for a resourceVersion in the future. Raises ApiError (504) if it is still not reached."""
    store = collection.store
    if rv <= store.revision:
        return
    await asyncio.sleep(FUTURE_WAIT)
    if rv > store.revision:
        raise ApiError(
            504, "Timeout", f"Timeout: Too large resource version: {rv}, current: {store.revision}",
            details={
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            },
            headers={"Retry-After": "1"},
        )  # fmt: skip


def _versions(
    collection: StoredCollection, namespace: str | None, rv: int | None, start: tuple[str, str] | None
) -> Sequence[ObjectVersion]:
    if rv is None:
        return list(collection.versions(namespace))
    versions = collection.versions_at(rv, namespace)
    if versions is None:
        if start is None:
            raise ApiError(410, "Expired", "The resourceVersion for the provided list is too old.")
        raise ApiError(410, "Expired", _TOO_OLD, metadata={"continue": _encode_token(-1, start, namespace)})
    return versions


def _key(version: ObjectVersion) -> tuple[str, str]:
    metadata = version.obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _cut(
    versions: Sequence[ObjectVersion], first: int, selector: ObjectSelector, limit: int, rv: int, namespace: str | None
) -> ListPage:
    end = first + limit if limit else len(versions)
    if selector.is_empty:
        page, rest = list(versions[first:end]), max(len(versions) - end, 0)
        return ListPage(page, rv, _encode_token(rv, _key(page[-1]), namespace), rest) if rest else ListPage(page, rv)
    matching = (version for version in islice(versions, first, None) if selector.matches(version.obj))
    page = list(islice(matching, limit or None))
    if next(matching, None) is None:
        return ListPage(page, rv)
    return ListPage(page, rv, _encode_token(rv, _key(page[-1]), namespace))


def _encode_token(rv: int, last: tuple[str, str], namespace: str | None) -> str:
    """Return a continue token that resumes after the object with key `last`; rv -1: continue with the current state."""
    start = last[1] if namespace is not None else "/".join(last)
    content = {"v": "meta.k8s.io/v1", "rv": rv, "start": f"{start}\0"}
    return base64.urlsafe_b64encode(orjson.dumps(content)).rstrip(b"=").decode()


def _decode_token(token: str, listed: str | None) -> tuple[int | None, tuple[str, str]]:
    try:
        content = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        rv, start = content["rv"], content["start"]
        namespace, _, name = start.rstrip("\0").rpartition("/")
    except (orjson.JSONDecodeError, binascii.Error, KeyError, TypeError, AttributeError, ValueError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    return (None if rv == -1 else rv), (namespace if listed is None else listed, name)
