"""Custom resources of the sandbox: definitions of the kinds that Sluice knows, and a simulated operator for each."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from admission.kinds import all_kinds, described
from admission.sandbox.apiserver.errors import SandboxError
from admission.sandbox.background import background
from admission.sandbox.controllers import autoscaler
from admission.sandbox.controllers.appwrappers import AppWrapperController
from admission.sandbox.controllers.descriptions import DESCRIPTIONS
from admission.sandbox.controllers.leaderworkersets import LeaderWorkerSetController
from admission.sandbox.controllers.operator import Operator
from admission.sandbox.controllers.rayowners import RayOwnerController
from admission.sandbox.controllers.volcano import VolcanoController

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from admission.kinds.base import Kind
    from admission.kinds.declared import DeclaredKind
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.controllers.base import SimulatedController
    from admission.sandbox.local import LocalClient
    from admission.sandbox.sandbox import Sandbox

_CONTROLLERS: dict[str, Callable[[LocalClient, Clock, DeclaredKind], SimulatedController[tuple[str, str]]]] = {
    "ray.io/rayjob": RayOwnerController,
    "ray.io/rayservice": RayOwnerController,
    "workload.codeflare.dev/appwrapper": AppWrapperController,
}
"""Operators that go through phases, instead of keeping the children that a description names."""
NEEDED = {
    "ray.io/rayjob": "ray.io/raycluster",
    "ray.io/rayservice": "ray.io/raycluster",
    "trainer.kubeflow.org/trainjob": "jobset.x-k8s.io/jobset",
}
"""By kind: the kind of the objects that its operator creates, which has to be served, too."""
_SCALES = {
    "PyTorchJob": {
        "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas",
        "statusReplicasPath": ".status.replicaStatuses.Worker.active",
    },
    "PaddleJob": {
        "specReplicasPath": ".spec.paddleReplicaSpecs.Worker.replicas",
        "statusReplicasPath": ".status.replicaStatuses.Active",
    },
}
"""By kind of kubeflow.org: the subresource that its definition has."""
_USER = "system:serviceaccount:operators:operator"
_OF_GROUPED_KINDS = {
    ("batch.volcano.sh", "Job"): VolcanoController,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): LeaderWorkerSetController,
}


def operator(
    local: LocalClient, clock: Clock, kind: DeclaredKind, *, end_pods: bool = True, refuses: bool = True
) -> SimulatedController[tuple[str, str]]:
    """Return the simulated operator of a kind with a suspend field. `end_pods` and `refuses`: see `Operator`."""
    if (own := _CONTROLLERS.get(kind.form.name)) is not None:
        return own(local, clock, kind)
    return Operator(local, clock, kind, DESCRIPTIONS.get(kind.form.name), end_pods=end_pods, refuses=refuses)


def definition(kind: Kind, version: str | None = None) -> Object:
    """Return the CustomResourceDefinition of a kind, in all its versions or in one; its schema allows any fields."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    more = {"scale": scale} if (scale := _SCALES.get(kind.kind)) and kind.group == "kubeflow.org" else {}
    versions = [
        {"name": version, "served": True, "storage": number == 0, "schema": {"openAPIV3Schema": schema},
         "subresources": {"status": {}, **more}}
        for number, version in enumerate(kind.versions if version is None else (version,))
    ]  # fmt: skip
    names = {"plural": kind.plural, "kind": kind.kind, "singular": kind.kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {"group": kind.group, "scope": "Namespaced", "names": names, "versions": versions},
    }


@asynccontextmanager
async def serve_kinds(sandbox: Sandbox, names: Iterable[str], *, operators: bool = True) -> AsyncIterator[None]:
    """Serve kinds, by their names in `integrations` (`ray.io/raycluster`), each with an operator, during the block.

    Without `operators` only their definitions are created. Raises InvalidObject for a name that Sluice does not know,
    SandboxError for a kind without a simulated operator.
    """
    client, user = sandbox.local("system:admin"), sandbox.local(_USER)
    needed = dict.fromkeys(each for name in names for each in (name, NEEDED.get(name)) if each is not None)
    kinds = {name: kind for name in needed if name != autoscaler.NAME for kind in all_kinds(frameworks=(name,))}
    prepared = {name: _operator_of(name, kind, user, sandbox.clock) for name, kind in kinds.items()}
    definitions = [definition(kind) for kind in kinds.values()]
    if autoscaler.NAME in needed:  # Sluice does not queue this kind, it uses it
        prepared[autoscaler.NAME] = autoscaler.Autoscaler(user, sandbox.clock)
        definitions.append(autoscaler.DEFINITION)
    # Each operator watches kinds of others, too.
    for each in definitions:
        await client.create("customresourcedefinitions", "", each)
    async with background(**{name: each.run() for name, each in prepared.items() if operators}):
        yield


def _operator_of(name: str, kind: Kind, user: LocalClient, clock: Clock) -> SimulatedController[tuple[str, str]]:
    """Return the simulated operator of a kind. Raises SandboxError if there is none."""
    grouped = _OF_GROUPED_KINDS.get((kind.group, kind.kind))
    if grouped is not None:
        return grouped(user, clock)
    if (by_form := described(name)) is not None:
        return operator(user, clock, by_form)
    raise SandboxError(f"The sandbox has no operator for {kind.kind} of {kind.group or 'the core group'}.")
