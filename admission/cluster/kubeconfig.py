"""Kubeconfig files: what is wrong with one, in one sentence, and its current context."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from admission.cluster.errors import BadKubeconfig, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

_YAML: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader if available: a kubeconfig with hundreds of clusters is parsed in a tenth of the time."""


def kubeconfig_namespace(path: str | None, context: str | None) -> str:
    """Return the namespace of a kubeconfig's context; empty: none. Raises BadKubeconfig. See `load_kubeconfig`."""
    where = path or os.environ.get("KUBECONFIG") or "~/.kube/config"
    return str(checked_context(where, context).get("namespace") or "")


def cluster_entry(path: str | None, context: str | None) -> dict[str, Any]:
    """Return how a kubeconfig's context reaches its API server, with the certificate itself in place of its file.

    Raises BadKubeconfig. See `load_kubeconfig`.
    """
    where = path or os.environ.get("KUBECONFIG") or "~/.kube/config"
    name = checked_context(where, context)["cluster"]
    for file in (Path(part).expanduser() for part in where.split(os.pathsep) if part):
        entries = (_read(file).get("clusters") or []) if file.exists() else []
        for entry in (each["cluster"] for each in entries if isinstance(each, dict) and each.get("name") == name):
            authority = entry.get("certificate-authority")
            if not authority or "certificate-authority-data" in entry:
                return dict(entry)
            try:
                content = (file.parent / authority).read_bytes()
            except OSError as error:
                raise BadKubeconfig(f"kubeconfig {where}: {authority} cannot be read: {error.strerror}") from error
            rest = {key: value for key, value in entry.items() if key != "certificate-authority"}
            return rest | {"certificate-authority-data": base64.b64encode(content).decode()}
    raise BadKubeconfig(f"kubeconfig {where}: there is no {name!r} among its clusters")


def checked_context(where: str, context: str | None) -> Mapping[str, Any]:
    """Return the context of a kubeconfig. Raises BadKubeconfig with a clear message for errors on which the library
    crashes, or falls back to localhost silently.
    """
    paths = [Path(part).expanduser() for part in where.split(os.pathsep) if part]
    documents = [_read(path) for path in paths if path.exists()]
    if not documents:
        raise BadKubeconfig(f"there is no kubeconfig at {where}: name one with --kubeconfig or $KUBECONFIG")
    # Of several files the library uses the last current-context, kubectl the first; here only its presence matters.
    chosen = context or next((d["current-context"] for d in reversed(documents) if d.get("current-context")), None)
    if not chosen:
        raise BadKubeconfig(f"kubeconfig {where} has no current-context: set it with `kubectl config use-context`")
    details: Mapping[str, Any] = _named(documents, "contexts", chosen, where).get("context") or {}
    if not details.get("user"):
        raise BadKubeconfig(f"kubeconfig {where}: context {chosen!r} names no user")
    _named(documents, "users", details["user"], where)
    cluster = _named(documents, "clusters", details.get("cluster", ""), where).get("cluster") or {}
    if not str(cluster.get("server", "")).startswith(("https://", "http://")):
        raise BadKubeconfig(f"kubeconfig {where}: cluster {details['cluster']!r} has no server with an http(s) address")
    return details


def _read(path: Path) -> Mapping[str, Any]:
    try:
        document = read_yaml(path.read_bytes())
    except OSError as error:
        raise BadKubeconfig(f"kubeconfig {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: {getattr(error, 'problem', '')}" if mark else one_line(error)
        raise BadKubeconfig(f"kubeconfig {path} is not YAML ({where})") from error
    if not isinstance(document, dict) or document.get("kind", "Config") != "Config":
        raise BadKubeconfig(f"{path} is no kubeconfig: it must be a mapping of kind Config")
    return document


def read_yaml(text: str | bytes) -> Any:
    """Parse a kubeconfig. Raises yaml.YAMLError."""
    try:
        return yaml.load(text, _YAML)  # noqa: S506  a safe loader
    except yaml.YAMLError:
        return yaml.safe_load(text)  # its error has a better message and position than libyaml's


def _named(documents: list[Mapping[str, Any]], section: str, name: str, where: str) -> Mapping[str, Any]:
    found = [entry for document in documents for entry in document.get(section) or [] if isinstance(entry, dict)]
    for entry in found:
        if entry.get("name") == name:
            return entry
    known = ", ".join(sorted(str(entry.get("name")) for entry in found)) or "none"
    raise BadKubeconfig(f"kubeconfig {where}: there is no {name!r} among its {section} ({known})")
