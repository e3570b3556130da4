"""Structural diff of two JSON documents, field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def differences(before: Any, after: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield the differences between two documents.

    Each has `op` (add, remove or replace), `path` such as `spec.resourceGroups[0].flavors[1].name`, `before` and
    `after`. Lists of different lengths are replaced as a whole.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({**before, **after}):
            inner = f"{path}.{name}" if path else name
            if name not in after:
                yield {"op": "remove", "path": inner, "before": before[name]}
            elif name not in before:
                yield {"op": "add", "path": inner, "after": after[name]}
            else:
                yield from differences(before[name], after[name], inner)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif before != after:
        yield {"op": "replace", "path": path, "before": before, "after": after}
