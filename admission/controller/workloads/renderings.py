"""Children from which their owner is read: its pod sets (TrainJob: a JobSet), or their present numbers of pods.

What is read is stored beside the spec of the owner (`RENDERED`), so that the owner is observed and processed like an
object of any other kind. A rendered child has the name of its owner, so that an owner cannot have two.

The numbers are those of a running child that scales by itself, as the RayCluster of a RayJob does by Ray's autoscaler:
its controller passes no number on to a child that exists, so that the owner's spec does not show how many pods run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import orjson

from admission.kinds.base import NUMBERS, RENDERED
from admission.kinds.children import rendered_owner

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.controller.state.tracked import StoredObject
    from admission.kinds.base import Kind, Object, PodCount
    from admission.kinds.children import ClaimedOwner
    from admission.kinds.registry import Kinds


def sources_first(objects: Mapping[str, StoredObject], kinds: Kinds) -> list[str]:
    """Return the uids of the objects, those of kinds that may be rendered children of others first."""
    sources = {kind.rendered_by for kind in kinds}
    return sorted(objects, key=lambda uid: (objects[uid].kind.group, objects[uid].kind.kind) not in sources)


class _Rendering(NamedTuple):
    child: str
    """Uid of the rendered child."""
    raw: bytes
    """Its uid, generation and spec, as JSON."""


class Renderings:
    """The children from which owners are read, as last observed."""

    def __init__(self) -> None:
        self._of_owner: dict[str, _Rendering] = {}
        """By uid of the owner."""
        self.owners: dict[str, str] = {}
        """Uid of the rendered child -> uid of its owner."""
        self._numbers: dict[str, tuple[str, dict[str, list[int]]]] = {}
        """By uid of the owner: uid of the child whose numbers count, and these (see `NUMBERS`)."""

    def note(self, kind: Kind, obj: Object, claimed: ClaimedOwner | None) -> str:
        """Process a new version of an object; return the uid of the owner to reconcile because of it, or "".

        `claimed`: the owner that its owner references name.
        """
        metadata = obj["metadata"]
        owner = "" if claimed is None else rendered_owner(kind, obj, claimed)
        if not owner:
            return self.child_deleted(metadata["uid"]) if metadata["uid"] in self.owners else ""
        content = {"uid": metadata["uid"], "generation": metadata.get("generation"), "spec": obj.get("spec")}
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

    def count(self, child: str, owner: str, counts: Iterable[PodCount]) -> bool:
        """Note the numbers of pods of a child; return whether they, or others, count for its owner because of it.

        Empty: it does not run. Of several children, as while a RayService replaces its cluster, the first counts until
        it is gone.
        """
        known = self._numbers.get(owner)
        if known is not None and known[0] != child:
            return False
        numbers = {count.name: [count.wanted, count.scale_up] for count in counts}
        if (known[1] if known else {}) == numbers:
            return False
        if numbers:
            self._numbers[owner] = child, numbers
        else:
            del self._numbers[owner]
        return True

    def complete(self, obj: Object) -> Object:
        """Return the owner with what is read from its children under `RENDERED`."""
        uid = obj["metadata"]["uid"]
        rendering, numbers = self._of_owner.get(uid), self._numbers.get(uid)
        if rendering is None and numbers is None and RENDERED not in obj:
            return obj
        found = {} if rendering is None else orjson.loads(rendering.raw)
        found |= {} if numbers is None else {NUMBERS: numbers[1]}
        without = {key: value for key, value in obj.items() if key != RENDERED}
        return {**without, RENDERED: found} if found else without
