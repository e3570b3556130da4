"""Reconciliation of Sluice's own objects in the cluster: changed fields are reset, added fields stay."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from admission.cluster.errors import AlreadyExists, NameTaken, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.cluster.client import Client, Object

SWITCHED_OFF: Final = "sluice.dev/gate-off"
"""Annotation of an object that an admin has disabled in an emergency; its value is the original configuration."""


class WriteOutcome(Enum):
    """Outcome of `reconcile` for one object."""

    UNCHANGED = "as desired"
    CHANGED = "different, or missing"
    SWITCHED_OFF = "switched off, and left so"


async def ensure(client: Client, collection: str, desired: Object) -> bool:
    """Reconcile an object; return whether it was created or patched. Raises ClusterError."""
    return await reconcile(client, collection, desired) is WriteOutcome.CHANGED


async def reconcile(
    client: Client, collection: str, desired: Object, *, is_ours: Callable[[Object], bool] = lambda _: True
) -> WriteOutcome:
    """Create the object `desired` in `collection`, or patch the existing one if it differs.

    An object with the annotation SWITCHED_OFF is left unchanged. Raises ClusterError, and NameTaken for an existing
    object for which `is_ours` returns False.
    """
    path = f"{collection}/{desired['metadata']['name']}"
    try:
        present = await client.get(path)
    except NotFound:
        try:
            await client.create(collection, desired)
        except AlreadyExists:  # another replica was faster; it may be of another version of Sluice
            present = await client.get(path)
        else:
            return WriteOutcome.CHANGED
    if not is_ours(present):
        raise NameTaken(
            f"{desired['kind']} {desired['metadata']['name']} exists already, and is not Sluice's: delete it"
        )
    if SWITCHED_OFF in (present["metadata"].get("annotations") or {}):
        return WriteOutcome.SWITCHED_OFF
    if _covers(present, desired):
        return WriteOutcome.UNCHANGED
    labels = {"metadata": {"labels": desired["metadata"].get("labels", {})}}
    await client.patch(
        path, labels | {key: desired[key] for key in desired.keys() - {"apiVersion", "kind", "metadata"}}
    )
    return WriteOutcome.CHANGED


def _covers(present: Any, desired: Any) -> bool:
    """Whether `present` has every field of `desired`; other fields, such as defaults of the API server, are ignored."""
    if isinstance(desired, dict):
        return isinstance(present, dict) and all(_covers(present.get(key), value) for key, value in desired.items())
    if isinstance(desired, list):
        return (
            isinstance(present, list)
            and len(present) == len(desired)
            and all(_covers(one, other) for one, other in zip(present, desired, strict=True))
        )
    return bool(present == desired)
