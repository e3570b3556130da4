"""Desired state of Sluice's own objects in the cluster: changed fields are reset, added fields stay."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from admission.cluster.errors import AlreadyExists, NotFound

if TYPE_CHECKING:
    from admission.cluster.client import Client, Object


log = logging.getLogger(__name__)

SWITCHED_OFF: Final = "sluice.dev/gate-off"
"""An annotation: somebody has taken the effect of an object away, in an emergency, and its value says what it was."""


async def ensure(client: Client, collection: str, wanted: Object) -> bool:
    """Create the object `wanted` in `collection`, or patch the one of its name where it differs.

    What is switched off is left so. Whether anything had to be done. Raises ClusterError.
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
            return True
    if SWITCHED_OFF in (present["metadata"].get("annotations") or {}):
        log.warning("%s is switched off (`sluice gate off`) and left so: `sluice gate on` brings it back", path)
        return False
    if _covers(present, wanted):
        return False
    labels = {"metadata": {"labels": wanted["metadata"].get("labels", {})}}
    await client.patch(path, labels | {key: wanted[key] for key in wanted.keys() - {"apiVersion", "kind", "metadata"}})
    return True


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
