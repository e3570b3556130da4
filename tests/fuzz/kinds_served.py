"""Other kinds in the fuzz's cluster: Sluice's settings, definitions, simulated operators and permissions."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from admission.kinds import all_kinds
from admission.kinds.form_parser import parse_form
from admission.sandbox.background import background
from admission.sandbox.operators import definition, operator, serve_kinds
from tests.custom_kinds import TRAINING_RUN_FORM

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from admission.sandbox.sandbox import Sandbox

Object = dict[str, Any]

_OPERATED: Final = (
    "ray.io/raycluster", "ray.io/rayjob", "jobset.x-k8s.io/jobset", "batch.volcano.sh/job",
    "workload.codeflare.dev/appwrapper",
)  # fmt: skip
_MCAD: Final = "mcad.ibm.com/appwrapper"
_FORM: Final[Object] = {
    **TRAINING_RUN_FORM,
    "scales": True,
    "podSets": [{**each, "minCount": True} for each in TRAINING_RUN_FORM["podSets"]],
}
_SIZES: Final = {
    ("scheduling.x-k8s.io", "PodGroup"): "v1alpha1",
    ("scheduling.k8s.io", "PodGroup"): "v1beta1",
    ("scheduling.k8s.io", "CompositePodGroup"): "v1alpha3",
}
_AREAL: Final = "areal.openpsi.io/"
SETTINGS: Final[Object] = {
    "integrations": {
        "frameworks": ["batch/job", "pod", "statefulset", *_OPERATED, _MCAD],
        "kinds": [_FORM],
        "groupLabels": [
            "gang.scheduling.koordinator.sh/name",
            "scheduling.x-k8s.io/pod-group",
            "yunikorn.apache.org/app-id",
        ],
        "rules": [
            {
                "queue": "main",
                "kinds": ["pod"],
                "matchLabels": {"app.kubernetes.io/managed-by": "areal-scheduler"},
                "podGroup": {"nameFrom": [f"{_AREAL}experiment"], "podSetFrom": f"{_AREAL}role"},
            }
        ],
    }
}
"""Configuration of `sluice serve`."""
KINDS: Final = all_kinds(
    frameworks=SETTINGS["integrations"]["frameworks"],
    own=[parse_form(_FORM)],
    group_labels=SETTINGS["integrations"]["groupLabels"],
)


@asynccontextmanager
async def kinds_served(sandbox: Sandbox) -> AsyncIterator[None]:
    """Serve all kinds during the block, with a ClusterRole `edit-kinds` for users."""
    admin, run = sandbox.local("admin"), KINDS.get("example.com", "TrainingRun")
    for own in (KINDS.get("mcad.ibm.com", "AppWrapper"), run):
        await admin.create("customresourcedefinitions", "", definition(own))
    for key, version in _SIZES.items():
        await admin.create("customresourcedefinitions", "", definition(KINDS.sizes[key], version))
    groups = [
        "ray.io",
        "jobset.x-k8s.io",
        "batch.volcano.sh",
        "workload.codeflare.dev",
        "mcad.ibm.com",
        "example.com",
        *(group for group, _ in _SIZES),
    ]
    rules = [{"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}]
    await admin.create("clusterroles", "", {"metadata": {"name": "edit-kinds"}, "rules": rules})
    runs = operator(sandbox.local("system:serviceaccount:operators:operator"), sandbox.clock, run)
    async with serve_kinds(sandbox, _OPERATED), background(runs=runs.run()):
        yield
