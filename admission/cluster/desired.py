"""Desired state of Sluice's own objects in the cluster: changed fields are reset, added fields stay."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from admission.cluster.errors import AlreadyExists, NameTaken, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.cluster.client import Client, Object

SWITCHED_OFF: Final = "sluice.dev/gate-off"
"""An annotation: somebody has taken the effect of an object away, in an emergency, and its value says what it was."""


class Found(Enum):
    """How an object was found by who brought it to what it should be."""

    AS_WANTED = "as wanted"
    DIFFERENT = "different, or missing"
    OFF = "switched off, and left so"


async def ensure(client: Client, collection: str, wanted: Object) -> bool:
    """As `bring`; whether anything had to be done. Raises ClusterError."""
    return await bring(client, collection, wanted) is Found.DIFFERENT


async def bring(
    client: Client, collection: str, wanted: Object, *, is_ours: Callable[[Object], bool] = lambda _: True
) -> Found:
    """Create the object `wanted` in `collection`, or patch the one of its name where it differs. Raises ClusterError.

    What is switched off is left so. Raises NameTaken if one of its name is not ours.
    """
    path = f"{collection}/{wanted['metadata']['name']}"
    try:
        present = await client.get(path)
    except NotFound:
        try:
            await client.create(collection, wanted)
        except AlreadyExists:  # another replica was faster; what it wrote may be of another version
            present = await client.get(path)
        else:
            return Found.DIFFERENT
    if not is_ours(present):
        raise NameTaken(
            f"{wanted['kind']} {wanted['metadata']['name']} is there already, and is not Sluice's: delete it"
        )
    if SWITCHED_OFF in (present["metadata"].get("annotations") or {}):
        return Found.OFF
    if _covers(present, wanted):
        return Found.AS_WANTED
    labels = {"metadata": {"labels": wanted["metadata"].get("labels", {})}}
    await client.patch(path, labels | {key: wanted[key] for key in wanted.keys() - {"apiVersion", "kind", "metadata"}})
    return Found.DIFFERENT


def _covers(present: Any, wanted: Any) -> bool:
    """Whether `present` has every field of `wanted`; fields that the API server defaults are ignored."""
    if isinstance(wanted, dict):
        return isinstance(present, dict) and all(_covers(present.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(present, list)
            and len(present) == len(wanted)
            and all(_covers(one, other) for one, other in zip(present, wanted, strict=True))
        )
    return bool(present == wanted)
