"""What pods need beside them, as their templates name it."""

from __future__ import annotations

from declared_examples import KINDS

from admission.kinds.needs import needs_of

POD = {
    "serviceAccountName": "trainer",
    "priorityClassName": "high",
    "runtimeClassName": "gvisor",
    "imagePullSecrets": [{"name": "pull"}],
    "initContainers": [
        {"name": "i", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "key", "key": "a"}}}]}
    ],
    "containers": [
        {
            "name": "c",
            "envFrom": [{"configMapRef": {"name": "all"}}, {"secretRef": {"name": "maybe", "optional": True}}],
            "env": [
                {"name": "B", "value": "b"},
                {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "D", "valueFrom": {"configMapKeyRef": {"name": "some", "key": "d", "optional": True}}},
            ],
        }
    ],
    "volumes": [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "configMap": {"name": "files"}},
        {"name": "c", "secret": {"secretName": "cert"}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
        {
            "name": "e",
            "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {"secret": {"name": "inner"}}]},
        },
        {"name": "f", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "mount"}}},
        {"name": "g", "azureFile": {"secretName": "azure", "shareName": "s"}},
    ],
    "resourceClaims": [{"name": "x", "resourceClaimTemplateName": "gpus"}, {"name": "y", "resourceClaimName": "gpu"}],
}
NEEDS = [
    "ConfigMap all", "ConfigMap files", "PersistentVolumeClaim data", "PriorityClass high", "ResourceClaim gpu",
    "ResourceClaimTemplate gpus", "RuntimeClass gvisor", "Secret azure", "Secret cert", "Secret inner", "Secret key",
    "Secret mount", "Secret pull", "ServiceAccount trainer",
]  # fmt: skip


def test_needs_are_all_that_the_templates_name_and_cannot_do_without():
    job = {"kind": "Job", "metadata": {"name": "j", "namespace": "n"}, "spec": {"template": {"spec": POD}}}
    kind = KINDS.get("batch", "Job")
    assert sorted(map(str, needs_of(kind, job))) == NEEDS
    plain = {"serviceAccountName": "default", "containers": [{"name": "c"}]}
    assert needs_of(kind, {**job, "spec": {"template": {"spec": plain}}}) == ()


def test_appwrapper_needs_nothing_that_it_contains():
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": POD}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"}}
    wrapper = {
        "metadata": {"name": "w", "namespace": "n"},
        "spec": {"components": [{"template": pod}, {"template": settings}]},
    }
    kind = KINDS.get("workload.codeflare.dev", "AppWrapper")
    assert sorted(map(str, needs_of(kind, wrapper))) == [each for each in NEEDS if each != "ConfigMap files"]
