"""The kinds of Kubernetes objects that can be queued, by the names that commands are given."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from admission.api.documents.workload_names import plain_kind
from admission.cli.errors import CommandError
from admission.kinds import all_kinds, frameworks_known, parse_form

if TYPE_CHECKING:
    from admission.kinds import Kind, Kinds

_OWNERS_OF_QUEUED: Final = ("cronjob", "cronworkflow", "replicaset")
"""Kinds whose objects are not queued themselves, but those that their controllers create."""


def known_kinds() -> Kinds:
    """Return all kinds that this version supports, and the custom kinds in the configuration file $SLUICE_CONFIG.

    Which of them are enabled is a setting of the server, and not known here. Raises InvalidSettings.
    """
    return _kinds_of(os.environ.get("SLUICE_CONFIG", ""))


@cache
def _kinds_of(file: str) -> Kinds:
    """Return the supported kinds and the custom kinds of a configuration file; empty: no file."""
    if not file:
        return all_kinds(frameworks=frameworks_known())
    from admission.cli.configuration.integrations import read_integrations  # slow to import

    return all_kinds(frameworks=frameworks_known(), own=map(parse_form, read_integrations(Path(file)).kinds))


def kind_of(manifest: dict[str, Any]) -> Kind | None:
    """Return the adapter for a manifest's apiVersion and kind; None if it cannot be queued."""
    group, _, version = str(manifest.get("apiVersion", "")).rpartition("/")
    kind = known_kinds().get(group, str(manifest.get("kind", "")))
    return kind if kind is not None and version in kind.versions and kind in list(known_kinds()) else None


def kind_named(name: str) -> Kind:
    """Return the adapter for a kind by its name or plural, in any case. Raises CommandError for an unknown one."""
    for kind in known_kinds():
        if name.lower() in (kind.kind.lower(), kind.plural):
            return kind
    raise CommandError(f'"{name}" is not a kind that can be queued; supported kinds: {queued_kinds()}')


def is_kind(name: str) -> bool:
    """Return whether this is a name of a kind, as kubectl accepts it, that can be queued or whose objects can."""
    return plain_kind(name) in {*(kind.kind.lower() for kind in known_kinds()), *_OWNERS_OF_QUEUED}


def queued_kinds() -> str:
    """Return the names of all kinds that can be queued, for messages: `Job, RayJob`."""
    return ", ".join(sorted({kind.kind for kind in known_kinds()}))
