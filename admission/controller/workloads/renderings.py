"""Objects whose pods are read from a child that their controller makes, such as the JobSet of a TrainJob.

The child's spec is put beside the spec of its owner (`RENDERED`), so that all that is read off the owner, and all that
follows from it, is the same as for any other kind. The name of a child is its owner's: nobody can add a second one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import orjson

from admission.kinds.base import RENDERED
from admission.kinds.children import rendered_owner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.controller.state.tracked import StoredObject
    from admission.kinds.base import Kind, Object
    from admission.kinds.children import Claim
    from admission.kinds.registry import Kinds


def sources_first(objects: Mapping[str, StoredObject], kinds: Kinds) -> list[str]:
    """The uids of objects; first of those that others may be read from."""
    sources = {kind.rendered_by for kind in kinds}
    return sorted(objects, key=lambda uid: (objects[uid].kind.group, objects[uid].kind.kind) not in sources)


class _Rendering(NamedTuple):
    child: str
    """Its uid."""
    raw: bytes


class Renderings:
    """The children that others are read from, as they were last seen, by the uid of their owner."""

    def __init__(self) -> None:
        self._of_owner: dict[str, _Rendering] = {}
        self.owners: dict[str, str] = {}
        """By the uid of the child."""

    def note(self, kind: Kind, obj: Object, claimed: Claim | None) -> str:
        """The uid of the owner that has to be looked at again, now that this object is as it is; empty: none.

        `claimed`: the owner that it claims.
        """
        metadata = obj["metadata"]
        owner = "" if claimed is None else rendered_owner(kind, obj, claimed)
        if not owner:
            return self.gone(metadata["uid"]) if metadata["uid"] in self.owners else ""
        content = {"generation": metadata.get("generation"), "spec": obj.get("spec")}
        rendering = _Rendering(metadata["uid"], bytes(orjson.dumps(content)))
        if self._of_owner.get(owner) == rendering:
            return ""
        self._of_owner[owner] = rendering
        self.owners[rendering.child] = owner
        return owner

    def gone(self, child: str) -> str:
        """The uid of the owner that has no such child any more; empty: none had it."""
        owner = self.owners.pop(child, "")
        if owner and self._of_owner[owner].child == child:
            del self._of_owner[owner]
            return owner
        return ""

    def complete(self, obj: Object) -> Object:
        """An object whose pods are read from a child, with what they are read from."""
        rendering = self._of_owner.get(obj["metadata"]["uid"])
        without = {key: value for key, value in obj.items() if key != RENDERED}
        return without if rendering is None else {**without, RENDERED: orjson.loads(rendering.raw)}
