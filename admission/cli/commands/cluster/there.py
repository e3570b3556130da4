"""What `sluice cluster join` makes in the cluster that joins: as the chart makes it, with fewer rights."""

from __future__ import annotations

import asyncio
import base64
import copy
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

import admission
from admission.cli.commands.kinds import roles_of_kinds
from admission.cli.errors import CommandError
from admission.cluster.desired import WriteOutcome, reconcile
from admission.cluster.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from admission.cluster.client import Client, Object
    from admission.kinds.registry import Kinds

JOINED: Final = "sluice.dev/joined-as"
"""Label of what `join` has made; its value is the name of the Cluster."""
NAMESPACE: Final = "sluice-system"
SERVICE: Final = "sluice-webhook"
TOKEN: Final = "sluice-token"  # noqa: S105  a name
"""Secret with the token of the ServiceAccount `sluice`."""
TOKEN_SECONDS: Final = 30.0
"""Seconds that the cluster may take to write the token into its Secret."""

_RIGHTS: Final = frozenset({
    ("ServiceAccount", "sluice"), ("ClusterRole", "sluice-controller"), ("ClusterRoleBinding", "sluice-controller"),
    ("Role", "sluice-database"), ("RoleBinding", "sluice-database"), ("ClusterRole", "sluice-provisioning"),
    ("ClusterRoleBinding", "sluice-provisioning"), ("ClusterRole", "sluice-topology"),
    ("ClusterRoleBinding", "sluice-topology"), ("ClusterRole", "sluice-admin"), ("ClusterRole", "sluice-viewer"),
    ("ClusterRole", "sluice-namespace-viewer"), ("ClusterRole", "sluice-team-lead"),
})  # fmt: skip
_GATE: Final = frozenset({
    ("Role", "sluice"), ("RoleBinding", "sluice"), ("NetworkPolicy", SERVICE), ("PodDisruptionBudget", SERVICE),
    ("Service", SERVICE), ("Deployment", SERVICE),
})  # fmt: skip
"""(kind, name) in the manifests; the Role is for the Secret of the gate's certificates."""
_ORDER: Final = ("Namespace", "ServiceAccount", "Secret", "ConfigMap")
"""Kinds that others need, in the order of their creation."""
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True)
class GateDeployment:
    """The gate's Deployment."""

    image: str
    integrations: Object
    """As in a configuration file, for which kinds are gated; empty: the default."""
    accepts_kueue_labels: bool = True


def manifests(
    name: str, namespace: str, kinds: Kinds, gate: GateDeployment | None, *, dispatches: bool, copies_along: bool
) -> list[Object]:
    """Return the objects to make in the cluster `name`, in this order.

    `gate`: None if admission policies are used. `dispatches`: whether Jobs of the hub run there. `copies_along`:
    whether ConfigMaps and Secrets of the hub are copied for them.
    """
    wanted = _RIGHTS if gate is None else _RIGHTS | _GATE
    shipped = _shipped("kustomize/base/sluice.yaml", namespace)
    found = [copy.deepcopy(each) for each in shipped if (each["kind"], each["metadata"]["name"]) in wanted]
    found += _shipped("rbac/access-reviews.yaml", namespace)
    found += _shipped("rbac/dispatch-target.yaml", namespace) if dispatches else []
    found += _shipped("rbac/copy-along-target.yaml", namespace) if copies_along else []
    for obj in found:
        if "rules" in obj:
            obj["rules"] = [
                rule for rule in obj["rules"] if not _is_for_hubs(rule, obj["kind"], obj["metadata"]["name"])
            ]
        if obj["kind"] == "Deployment" and gate is not None:
            _fill(obj["spec"]["template"]["spec"], gate)
    found += roles_of_kinds(kinds, namespace, "sluice")
    found += [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": _RESTRICTED}},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": TOKEN,
                "namespace": namespace,
                "annotations": {"kubernetes.io/service-account.name": "sluice"},
            },
        },
    ]
    if gate is not None and gate.integrations:
        found.append(_configuration(namespace, gate.integrations))
    for obj in found:
        labels = {key: value for key, value in obj["metadata"].get("labels", {}).items() if "version" not in key}
        obj["metadata"]["labels"] = {**labels, "app.kubernetes.io/name": "sluice", JOINED: name}
    place = {kind: number for number, kind in enumerate(_ORDER)}
    return sorted(found, key=lambda obj: place.get(obj["kind"], len(_ORDER)))


_RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}


def _is_for_hubs(rule: Object, kind: str, name: str) -> bool:
    """Whether a rule is not needed where neither the API is served nor a leader elected."""
    if "nonResourceURLs" in rule or rule["apiGroups"] == ["apiregistration.k8s.io"]:
        return True
    return (kind, name) == ("Role", "sluice") and rule["apiGroups"] == ["coordination.k8s.io"]


def _fill(pod: Object, gate: GateDeployment) -> None:
    container = pod["containers"][0]
    container["image"] = gate.image
    if not gate.accepts_kueue_labels:
        container["args"].append("--no-accept-kueue-labels")
    if gate.integrations:
        container["args"].append("--config=/etc/sluice/config.yaml")
        container["volumeMounts"].append({"name": "configuration", "mountPath": "/etc/sluice", "readOnly": True})
        pod["volumes"].append({"name": "configuration", "configMap": {"name": "sluice"}})


def _configuration(namespace: str, integrations: Object) -> Object:
    document = {"apiVersion": "sluice.dev/v1", "kind": "Configuration", "integrations": integrations}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "sluice", "namespace": namespace},
        "data": {"config.yaml": yaml.safe_dump(document)},
    }


def _shipped(file: str, namespace: str) -> list[Object]:
    """Return the manifests in a file of the folder `deploy`, for another namespace."""
    package = Path(admission.__file__).parent
    files = (package / "_manifests" / file, package.parent / "deploy" / file)
    text = next(file for file in files if file.exists()).read_text()
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return list(yaml.load_all(text.replace(NAMESPACE, namespace), loader))


# --- requests


def title(obj: Object) -> str:
    """Return `deployment/sluice-webhook`."""
    return f"{obj['kind'].lower()}/{obj['metadata']['name']}"


def collection(obj: Object) -> str:
    """Return the path of the objects of its kind, in its namespace."""
    group, metadata = obj["apiVersion"], obj["metadata"]
    root = f"/api/{group}" if "/" not in group else f"/apis/{group}"
    namespace = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{root}{namespace}/{_plural(obj)}"


def _plural(obj: Object) -> str:
    kind = obj["kind"].lower()
    return f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"


async def read(client: Client, objects: Iterable[Object]) -> list[Object]:
    """Return those of the objects that exist, as they are there. Raises ClusterError."""
    found = []
    for obj in objects:
        try:
            found.append(await client.get(f"{collection(obj)}/{obj['metadata']['name']}"))
        except NotFound:
            continue
    return found


async def missing_rights(client: Client, objects: Sequence[Object], verbs: Sequence[str]) -> list[str]:
    """Return what the user of the kubeconfig may not do, such as `create clusterroles.rbac.authorization.k8s.io`."""

    async def review(verb: str, resource: str, group: str, namespace: str) -> str:
        attributes = {"verb": verb, "resource": resource, "group": group, "namespace": namespace}
        spec = {"resourceAttributes": {key: value for key, value in attributes.items() if value}}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
        answer = await client.create(_REVIEWS, body)
        allowed = bool(answer.get("status", {}).get("allowed"))
        return (
            ""
            if allowed
            else f"{verb} {resource}{f'.{group}' if group else ''}{f' in {namespace}' if namespace else ''}"
        )

    asked = dict.fromkeys(
        (verb, _plural(obj), obj["apiVersion"].rpartition("/")[0], obj["metadata"].get("namespace", ""))
        for obj in objects
        for verb in verbs
    )
    return [text for text in await asyncio.gather(*(review(*each) for each in asked)) if text]


async def apply(client: Client, objects: Iterable[Object]) -> AsyncIterator[str]:
    """Create or change the objects; yield a line for each. A namespace that is there is used as it is."""
    for obj in objects:
        before = await read(client, [obj])
        if before and obj["kind"] == "Namespace":
            yield f"{title(obj)} exists"
            continue
        outcome = await reconcile(client, collection(obj), obj)
        changed = "changed" if before else "created"
        yield f"{title(obj)} {changed if outcome is WriteOutcome.CHANGED else 'unchanged'}"


async def token(client: Client, namespace: str) -> str:
    """Return the token of the Secret, for which the cluster's token controller is waited. Raises CommandError."""
    path = f"/api/v1/namespaces/{namespace}/secrets/{TOKEN}"
    try:
        async with asyncio.timeout(TOKEN_SECONDS):
            while True:
                data = (await client.get(path)).get("data") or {}
                if data.get("token"):
                    return base64.b64decode(data["token"]).decode()
                await asyncio.sleep(0.2)
    except TimeoutError as error:
        raise CommandError(
            f"Secret {namespace}/{TOKEN} has no token after {TOKEN_SECONDS:g} s: the cluster issues no lasting tokens. "
            "Make a kubeconfig for the ServiceAccount sluice by an exec plugin, and the Cluster by sluice apply"
        ) from error


async def remove(client: Client, objects: Iterable[Object], name: str) -> AsyncIterator[str]:
    """Delete those of the objects that `join` has made for this name, in this order; yield a line for each."""
    for obj in await read(client, objects):
        metadata = obj["metadata"]
        if (metadata.get("labels") or {}).get(JOINED) != name:
            continue
        with suppress(NotFound):
            await client.delete(f"{collection(obj)}/{metadata['name']}", {"preconditions": {"uid": metadata["uid"]}})
        yield f"{title(obj)} deleted"
