"""Labels, annotations and kinds of other systems that Sluice reads, with the place in the source of their system.

Each name was looked up by hand, at the commit given with it. Look up names that you add or change, too, and list them:
no other test notices a misspelt name, which no system uses.
"""

from __future__ import annotations

import re

import pytest

from admission.kinds import all_kinds, frameworks_known
from admission.kinds.foreign_groups import FOREIGN
from tests.benchmarks.measure import REPOSITORY

KEYS = {
    "kubernetes v1.36.2: staging/src/k8s.io/api/batch/v1, apps/v1": """
        batch.kubernetes.io/controller-uid batch.kubernetes.io/job-completion-index apps.kubernetes.io/pod-index
        kubernetes.io/job-controller statefulset.kubernetes.io/pod-name
        kubectl.kubernetes.io/last-applied-configuration""",
    "kueue ff69552: pkg/controller/constants, pkg/controller/jobs/{job,pod}, apis/kueue/v1beta2/topology_types.go": """
        kueue.x-k8s.io/queue-name kueue.x-k8s.io/priority-class kueue.x-k8s.io/max-exec-time-seconds
        kueue.x-k8s.io/job-min-parallelism kueue.x-k8s.io/job-completions-equal-parallelism kueue.x-k8s.io/job-uid
        kueue.x-k8s.io/pod-group-name kueue.x-k8s.io/pod-group-total-count kueue.x-k8s.io/pod-group-fast-admission
        kueue.x-k8s.io/admission-gated-by kueue.x-k8s.io/retriable-in-group kueue.x-k8s.io/pod-group-pod-index
        kueue.x-k8s.io/pod-group-pod-index-label kueue.x-k8s.io/pod-index-offset kueue.x-k8s.io/podset
        kueue.x-k8s.io/topology kueue.x-k8s.io/podset-required-topology kueue.x-k8s.io/priority-boost
        kueue.x-k8s.io/safe-to-forcefully-delete kueue.x-k8s.io/multikueue""",
    "kueue 006767f: pkg/controller/admissionchecks/provisioning/controller.go, constants.go": """
        kueue.x-k8s.io/provisioning-request autoscaling.x-k8s.io/consume-provisioning-request
        autoscaling.x-k8s.io/provisioning-class-name autoscaling.x-k8s.io/provisioningrequest""",
    "kueue: KEP 8729, of its pull request 8844, which is not merged": """
        kueue.x-k8s.io/cannot-borrow kueue.x-k8s.io/cannot-preempt""",
    "volcano-sh/apis 536f121: pkg/apis/batch/v1alpha1/labels.go, pkg/apis/scheduling/v1beta1/labels.go": """
        volcano.sh/job-name volcano.sh/queue-name volcano.sh/hierarchy volcano.sh/hierarchy-weights
        scheduling.volcano.sh/queue-name scheduling.k8s.io/group-name""",
    "volcano ed72c7c: pkg/controllers/job/helpers/helpers.go": "volcano.sh/controller-out-of-sync",
    "yunikorn-k8shim 23b6b47: pkg/common/constants/constants.go; yunikorn-scheduler-interface 2858f4d": """
        yunikorn.apache.org/app-id yunikorn.apache.org/queue yunikorn.apache.org/task-groups
        yunikorn.apache.org/task-group-name""",
    "KAI-Scheduler 72de64f: pkg/common/constants/constants.go; the second is of its first releases": """
        kai.scheduler/queue runai/queue""",
    "koordinator a7a1b76: apis/extension/coscheduling.go, apis/extension/elastic_quota.go": """
        gang.scheduling.koordinator.sh/name gang.scheduling.koordinator.sh/min-available
        gang.scheduling.koordinator.sh/total-number pod-group.scheduling.sigs.k8s.io/name
        pod-group.scheduling.sigs.k8s.io/min-available quota.scheduling.koordinator.sh/name
        quota.scheduling.koordinator.sh/is-parent quota.scheduling.koordinator.sh/parent
        quota.scheduling.koordinator.sh/allow-lent-resource quota.scheduling.koordinator.sh/shared-weight
        quota.scheduling.koordinator.sh/namespaces""",
    "scheduler-plugins 903da7d: apis/scheduling/v1alpha1/types.go": "scheduling.x-k8s.io/pod-group",
    "kuberay feeaf72: ray-operator/controllers/ray/utils/constant.go; the last is of its pull request": """
        ray.io/kuberay-operator ray.io/priority-class-name ray.io/gang-scheduling-enabled
        ray.io/cronjob-name ray.io/native-workload-scheduling""",
    "training-operator release-1.9: pkg/apis/kubeflow.org/v1/common_types.go": """
        kubeflow.org/training-operator training.kubeflow.org/replica-index""",
    "mpi-operator caa3c47: pkg/apis/kubeflow/v2beta1/types.go": "kubeflow.org/mpi-operator",
    "trainer 8c0f505: pkg/apis/trainer/v1alpha1/trainjob_types.go": "trainer.kubeflow.org/trainjob-controller",
    "jobset 08dfbdf: api/jobset/v1alpha2/jobset_types.go": """
        jobset.sigs.k8s.io/jobset-controller jobset.sigs.k8s.io/job-index""",
    "lws 060ab4d: api/leaderworkerset/v1/leaderworkerset_types.go": """
        leaderworkerset.sigs.k8s.io/name leaderworkerset.sigs.k8s.io/worker-index
        leaderworkerset.sigs.k8s.io/group-index""",
    "appwrapper b47a99e: api/v1beta2/appwrapper_types.go, pkg/utils/utils.go": """
        workload.codeflare.dev/appwrapper-controller workload.codeflare.dev.appwrapper/tas-pod-index-label
        workload.codeflare.dev.appwrapper/tas-sub-group-index-label
        workload.codeflare.dev.appwrapper/tas-sub-group-count""",
    "argo-workflows f016ad8: workflow/common/common.go": "workflows.argoproj.io/artifact-gc",
}
KNOWN = {key for keys in KEYS.values() for key in keys.split()}
KINDS = {
    # The repositories are those above unless stated otherwise; the versions are registered in register.go or
    # groupversion_info.go there.
    ("batch", "Job"): ("jobs", "v1"),
    ("", "Pod"): ("pods", "v1"),
    ("apps", "StatefulSet"): ("statefulsets", "v1"),
    ("jobset.x-k8s.io", "JobSet"): ("jobsets", "v1alpha2"),
    ("trainer.kubeflow.org", "TrainJob"): ("trainjobs", "v1alpha1"),
    ("kubeflow.org", "PyTorchJob"): ("pytorchjobs", "v1"),
    ("kubeflow.org", "TFJob"): ("tfjobs", "v1"),
    ("kubeflow.org", "XGBoostJob"): ("xgboostjobs", "v1"),
    ("kubeflow.org", "PaddleJob"): ("paddlejobs", "v1"),
    ("kubeflow.org", "JAXJob"): ("jaxjobs", "v1"),
    ("kubeflow.org", "MPIJob"): ("mpijobs", "v2beta1 v1"),
    ("ray.io", "RayCluster"): ("rayclusters", "v1"),
    ("ray.io", "RayJob"): ("rayjobs", "v1"),
    ("ray.io", "RayService"): ("rayservices", "v1"),
    ("workload.codeflare.dev", "AppWrapper"): ("appwrappers", "v1beta2 v1beta1"),
    ("mcad.ibm.com", "AppWrapper"): ("appwrappers", "v1beta1"),  # multi-cluster-app-dispatcher before 7877b7b
    ("sparkoperator.k8s.io", "SparkApplication"): ("sparkapplications", "v1beta2"),  # spark-operator 38082f3
    ("argoproj.io", "Workflow"): ("workflows", "v1alpha1"),
    ("batch.volcano.sh", "Job"): ("jobs", "v1alpha1"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): ("leaderworkersets", "v1"),
    ("scheduling.x-k8s.io", "PodGroup"): ("podgroups", "v1alpha1"),
    ("scheduling.sigs.k8s.io", "PodGroup"): ("podgroups", "v1alpha1"),  # koordinator: apis/thirdparty
    ("scheduling.volcano.sh", "PodGroup"): ("podgroups", "v1beta1"),
    ("scheduling.k8s.io", "PodGroup"): ("podgroups", "v1beta1 v1alpha3 v1alpha2"),
    ("scheduling.k8s.io", "CompositePodGroup"): ("compositepodgroups", "v1alpha3"),  # kubernetes v1.37
    ("scheduling.k8s.io", "Workload"): ("workloads", "v1alpha1"),
}
_KEY = re.compile(r"(?:[a-z0-9-]+(?:\.[a-z0-9-]+)+|runai)/[a-z][A-Za-z0-9._-]*")
_OURS = re.compile(r"(?:[a-z]+\.)*sluice\.dev/.*")
_NO_KEYS = re.compile(r".*/v\d[a-z0-9]*|kubernetes\.io/[a-z.-]+|nvidia\.com/gpu|node\.kubernetes\.io/.*")
"""Texts with the form of a key that need no entry: API versions, keys of Kubernetes itself, and a resource name."""


def foreign_keys(found: set[str]) -> set[str]:
    frameworks = {name for name in frameworks_known() if "/" in name} | {"mcad.ibm.com/appwrapper"}
    keys = {text for text in found if _KEY.fullmatch(text) and not _OURS.fullmatch(text)}
    return {key for key in keys if key in KNOWN or not _NO_KEYS.fullmatch(key)} - frameworks


KUEUE_FRAMEWORKS = """
    batch/job pod deployment statefulset leaderworkerset.x-k8s.io/leaderworkerset jobset.x-k8s.io/jobset
    kubeflow.org/mpijob kubeflow.org/paddlejob kubeflow.org/pytorchjob kubeflow.org/tfjob kubeflow.org/xgboostjob
    kubeflow.org/jaxjob trainer.kubeflow.org/trainjob ray.io/rayjob ray.io/raycluster ray.io/rayservice
    workload.codeflare.dev/appwrapper sparkoperator.k8s.io/sparkapplication"""
"""The names of `integrations.frameworks` in Kueue's Configuration."""


@pytest.mark.parametrize("name", KUEUE_FRAMEWORKS.split())
def test_framework_name_of_kueue_is_known(name):
    assert len(all_kinds(frameworks=(name,)).gated) == 1


def test_each_foreign_key_in_the_documentation_is_listed():
    """Users copy names from the documentation into their configuration."""
    pages = [page.read_text() for page in (REPOSITORY / "docs").rglob("*.md")]
    written = {word for page in pages for word in re.findall(r"[\w.-]+/[\w.-]+", page)}
    of_systems = {key for key in written if key.partition("/")[0] in {each.partition("/")[0] for each in KNOWN}}
    assert foreign_keys(of_systems) - KNOWN == set()


def test_each_kind_and_its_versions_are_listed():
    kinds = all_kinds(frameworks=frameworks_known(), group_labels=tuple(FOREIGN))
    found = {
        (kind.group, kind.kind): (kind.plural, " ".join(kind.versions))
        for kind in (*kinds, *kinds.sizes.values())
        if kind.group != "sluice.dev"
    }
    assert found == KINDS
