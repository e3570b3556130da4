"""Rendered children: objects whose pod sets are read from a child that their controller creates (TrainJob: a JobSet).

The child's spec is stored beside the spec of its owner (`RENDERED`), so that the owner is observed and processed like
an object of any other kind. A rendered child has the name of its owner, so that an owner cannot have two.
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
    """Return the uids of the objects, those of kinds that may be rendered children of others first."""
    sources = {kind.rendered_by for kind in kinds}
    return sorted(objects, key=lambda uid: (objects[uid].kind.group, objects[uid].kind.kind) not in sources)


class _Rendering(NamedTuple):
    child: str
    """Uid of the rendered child."""
    raw: bytes
    """Its generation and spec, as JSON."""


class Renderings:
    """The rendered children as last observed."""

    def __init__(self) -> None:
        self._of_owner: dict[str, _Rendering] = {}
        """By uid of the owner."""
        self.owners: dict[str, str] = {}
        """Uid of the rendered child -> uid of its owner."""

    def note(self, kind: Kind, obj: Object, claimed: Claim | None) -> str:
        """Process a new version of an object; return the uid of the owner to reconcile because of it, or "".

        `claimed`: the owner that its owner references name.
        """
        metadata = obj["metadata"]
        owner = "" if claimed is None else rendered_owner(kind, obj, claimed)
        if not owner:
            return self.child_deleted(metadata["uid"]) if metadata["uid"] in self.owners else ""
        content = {"generation": metadata.get("generation"), "spec": obj.get("spec")}
        rendering = _Rendering(metadata["uid"], bytes(orjson.dumps(content)))
        if self._of_owner.get(owner) == rendering:
            return ""
        self._of_owner[owner] = rendering
        self.owners[rendering.child] = owner
        return owner

    def child_deleted(self, child: str) -> str:
        """Process the deletion of an object; return the uid of the owner whose rendered child it was, or ""."""
        owner = self.owners.pop(child, "")
        if owner and self._of_owner[owner].child == child:
            del self._of_owner[owner]
            return owner
        return ""

    def complete(self, obj: Object) -> Object:
        """Return a copy of the owner with the current content of its rendered child under `RENDERED`, if it has one."""
        rendering = self._of_owner.get(obj["metadata"]["uid"])
        without = {key: value for key, value in obj.items() if key != RENDERED}
        return without if rendering is None else {**without, RENDERED: orjson.loads(rendering.raw)}
