"""What users may do in a sandbox: the roles of deploy/rbac, and bindings of roles to users and groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

RBAC = "rbac.authorization.k8s.io"
FOLDER = Path(__file__).parents[1] / "deploy" / "rbac"


async def create_roles(admin: Any, *files: str) -> None:
    """Create the objects of files of deploy/rbac; without names those of users.yaml."""
    for file in files or ("users.yaml",):
        for document in yaml.load_all((FOLDER / file).read_text(), yaml.CSafeLoader):
            await admin.create(f"{document['kind'].lower()}s", "", document)


async def bind(
    admin: Any, role: str, user: str, *, namespace: str = "", kind: str = "User", of: str = "ClusterRole"
) -> None:
    """Give a user (or group) a role, in one namespace or everywhere."""
    binding = {
        "metadata": {"name": f"{role}-{user}"},
        "roleRef": {"apiGroup": RBAC, "kind": of, "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": kind, "name": user}],
    }
    await admin.create("rolebindings" if namespace else "clusterrolebindings", namespace, binding)


async def allow(
    admin: Any, user: str, *rules: dict[str, Any], namespace: str = "", kind: str = "User", name: str = ""
) -> None:
    """Let a user (or group) do what the rules say, in one namespace or everywhere, by a role of its own."""
    plural, of = ("roles", "Role") if namespace else ("clusterroles", "ClusterRole")
    metadata = {"name": name} if name else {"generateName": "allowed-"}
    role = await admin.create(plural, namespace, {"metadata": metadata, "rules": [*rules]})
    await bind(admin, role["metadata"]["name"], user, namespace=namespace, kind=kind, of=of)
