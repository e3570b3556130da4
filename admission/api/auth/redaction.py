"""Redaction of workload names of other namespaces and clusters: only users who may list workloads there see them.

Messages of the engine and the controller about a workload are shown to all users of its namespace; they therefore
name workloads of other namespaces, and of other clusters, by uid only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from admission.api.auth.cluster_rights import may_read_workload
from admission.engine.vocabulary import OF_ANOTHER_CLUSTER, OF_ANOTHER_NAMESPACE
from admission.store.workloads.queries import ColumnFilter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

    from admission.store.store import Store

_MENTION = re.compile(rf"(?:{OF_ANOTHER_NAMESPACE}|{OF_ANOTHER_CLUSTER}) \(UID: ([^)\s]+)\)")


async def named_messages(request: web.Request, store: Store, messages: Iterable[str]) -> list[str]:
    """Return the messages, with the names of those workloads mentioned by uid that the request's user may list.

    Raises ReviewUnavailable and StoreError.
    """
    texts = [*messages]
    uids = frozenset(uid for text in texts for uid in _MENTION.findall(text))
    if not uids:
        return texts
    page = await store.workloads.list(where=(ColumnFilter("uid", uids),), limit=len(uids))
    found = [record.workload for record in page.workloads]
    keys = {workload.uid: workload.key for workload in found if await may_read_workload(request, workload)}

    def name(match: re.Match[str]) -> str:
        key = keys.get(match[1])
        return match[0] if key is None else f"workload {key} (UID: {match[1]})"

    return [_MENTION.sub(name, text) for text in texts]
