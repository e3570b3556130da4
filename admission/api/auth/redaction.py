"""Redaction of workload names of other namespaces: only users who may list workloads there see them.

Messages of the engine and the controller about a workload are shown to all users of its namespace; they therefore
name workloads of other namespaces by uid only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from admission.api.auth.authorization import may_read
from admission.engine.vocabulary import FOREIGN
from admission.store.workloads.queries import ColumnFilter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

    from admission.store.store import Store

_MENTION = re.compile(rf"{FOREIGN} \(UID: ([^)\s]+)\)")


async def named_messages(request: web.Request, store: Store, messages: Iterable[str]) -> list[str]:
    """Return the messages; for users who may read all namespaces, with the names of workloads mentioned by uid.

    Raises ReviewUnavailable and StoreError.
    """
    texts = [*messages]
    uids = frozenset(uid for text in texts for uid in _MENTION.findall(text))
    if not uids or not await may_read(request, ""):
        return texts
    page = await store.workloads.list(where=(ColumnFilter("uid", uids),), limit=len(uids))
    keys = {record.workload.uid: record.workload.key for record in page.workloads}

    def name(match: re.Match[str]) -> str:
        key = keys.get(match[1])
        return match[0] if key is None else f"workload {key} (UID: {match[1]})"

    return [_MENTION.sub(name, text) for text in texts]
