"""`sluice import kueue` of Kueue's own configuration: the settings it becomes, and what is told of each field."""

from __future__ import annotations

import json

import pytest
import yaml
from command_runner import Sluice

from admission.sandbox.sandbox import Sandbox
from tests.user_permissions import allow

V1BETA1 = """
apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
namespace: kueue-system
health: {healthProbeBindAddress: ":8081", readinessEndpointName: ready, livenessEndpointName: live}
metrics:
  bindAddress: :8443
  enableClusterQueueResources: true
  customLabels: [{name: team}]
  localQueueMetrics: {enable: true}
webhook: {port: 9443, host: "", certDir: /tmp}
pprofBindAddress: :8083
leaderElection:
  {leaderElect: true, resourceName: kueue, resourceNamespace: x, resourceLock: leases,
   leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 5s}
controller: {groupKindConcurrency: {Job.batch: 5}, cacheSyncTimeout: 1m}
clientConnection: {qps: 50, burst: 100}
tls: {minVersion: VersionTLS13, cipherSuites: [], curvePreferences: []}
internalCertManagement: {enable: true, webhookServiceName: a, webhookSecretName: b}
manageJobsWithoutQueueName: true
managedJobsNamespaceSelector: {matchLabels: {queued: "yes"}}
waitForPodsReady: {enable: true, requeuingStrategy: {timestamp: Creation, backoffLimitCount: 3}}
fairSharing: {enable: true}
admissionFairSharing: {usageHalfLifeTime: 168h, usageSamplingInterval: 5m, resourceWeights: {cpu: 0}}
queueVisibility: {updateIntervalSeconds: 5, clusterQueues: {maxCount: 10}}
multiKueue: {gcInterval: 1m, origin: a, workerLostTimeout: 15m}
integrations:
  frameworks: [batch/job, statefulset, trainer.kubeflow.org/trainjob]
  externalFrameworks: [Workflow.v1alpha1.argoproj.io, Foo.v1.example.com]
  podOptions: {namespaceSelector: {}, podSelector: {}}
  labelKeysToCopy: [team]
resources:
  excludeResourcePrefixes: [example.com/]
  transformations: [{input: nvidia.com/mig-1g.5gb, strategy: Replace, outputs: {example.com/gpu-memory: 5Gi}}]
  deviceClassMappings: [{name: a, deviceClassNames: [b]}]
featureGates: {TopologyAwareScheduling: true, PartialAdmission: false}
objectRetentionPolicies: {workloads: {afterFinished: 1h, afterDeactivatedByKueue: 1h}}
"""


def in_config_map(text):
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kueue-manager-config", "namespace": "kueue-system"},
        "data": {"controller_manager_config.yaml": text},
    }
    return yaml.safe_dump(document)


def minimal(fields, version="v1beta2"):
    return f"apiVersion: config.kueue.x-k8s.io/{version}\nkind: Configuration\n{fields}"


def told(lines):
    """What was told of each field, by its path."""
    rows = [line.removeprefix("# ").partition(" ") for line in lines]
    return {path: outcome.strip() for path, _, outcome in rows}


async def effective(sluice, file):
    """The settings that are set by this file."""
    shown = await sluice("config", "show", "--config", str(file), "-o", "json")
    assert shown.exit_code == 0, shown.output
    return {key: each["value"] for key, each in json.loads(shown.stdout).items() if str(file) in each["from"]}


@pytest.mark.parametrize("wrapped", [False, True])
async def test_each_field_of_kueue_is_accounted_for_and_the_result_is_valid(sluice, tmp_path, wrapped):
    source, file = tmp_path / "kueue.yaml", tmp_path / "sluice.yaml"
    source.write_text(in_config_map(V1BETA1) if wrapped else V1BETA1)
    done = await sluice("import", "kueue", "-f", str(source), "--config-out", str(file))
    assert done.exit_code == 0, done.output
    account = told(done.stdout.splitlines())
    assert not [path for path, outcome in account.items() if "UNKNOWN" in outcome]
    assert account["leaderElection.leaseDuration"] == "taken as leaseDuration, in seconds"
    assert account["multiKueue.workerLostTimeout"] == "taken as clusterLostTimeout, in seconds"
    assert account["multiKueue.origin"].startswith("not needed: ")
    for path in (
        "integrations.podOptions.podSelector",
        "integrations.externalFrameworks[1]",
        "metrics.customLabels",
        "tls.minVersion",
        "featureGates.PartialAdmission",
        "objectRetentionPolicies.workloads.afterDeactivatedByKueue",
    ):
        assert account[path].startswith("NOT TAKEN: "), path

    assert (await sluice("config", "check", str(file))).exit_code == 0
    settings = await effective(sluice, file)
    assert settings.keys() == {
        "clusterLostTimeout",
        "leaseDuration",
        "renewDeadline",
        "retryPeriod",
        "manageJobsWithoutQueueName",
        "managedJobsNamespaceSelector",
        "waitForPodsReady",
        "fairSharing",
        "admissionFairSharing",
        "integrations",
        "resources",
    }
    assert settings["leaseDuration"] == 30
    assert settings["clusterLostTimeout"] == 900
    ready = settings["waitForPodsReady"]
    assert (ready["timeout"], ready["blockAdmission"]) == ("300s", True), "the defaults of v1beta1"
    assert ready["requeuingStrategy"]["timestamp"] == "Creation"
    assert settings["integrations"]["frameworks"] == [
        "batch/job",
        "statefulset",
        "trainer.kubeflow.org/trainjob",
        "argoproj.io/workflow",
        "jobset.x-k8s.io/jobset",
        "pod",
    ]


async def test_what_is_printed_without_a_file_is_a_configuration_file(sluice, tmp_path):
    printed = await sluice("import", "kueue", "-f", "-", stdin=minimal("clientConnection: {qps: 50}\n"))
    assert told(printed.stdout.splitlines())["clientConnection.qps"].startswith("not needed: ")
    file = tmp_path / "sluice.yaml"
    file.write_text(printed.stdout)
    settings = await effective(sluice, file)
    assert settings.keys() == {"integrations"}
    assert settings["integrations"]["frameworks"] == ["batch/job"], "Kueue's default"


async def test_disabled_features_of_v1beta1_stay_disabled(sluice, tmp_path):
    text = minimal("waitForPodsReady: {timeout: 5m}\nfairSharing: {enable: false}\n", "v1beta1")
    file = tmp_path / "sluice.yaml"
    file.write_text((await sluice("import", "kueue", "-f", "-", stdin=text)).stdout)
    settings = await effective(sluice, file)
    assert settings["waitForPodsReady"]["enable"] is False
    assert settings["fairSharing"]["enable"] is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (minimal("waitForPodsReady: {timeout: soon}"), 'waitForPodsReady.timeout: "soon" is not a duration'),
        (minimal("waitForPodsReady: 5m"), "waitForPodsReady: must be an object"),
        (minimal("fairSharing: {enable: yes please}", "v1beta1"), "fairSharing.enable: must be true or false"),
        (minimal("fairSharing: {preemptionStrategies: [Never]}"), "fairSharing.preemptionStrategies[0]: "),
        (minimal("leaderElection: {retryPeriod: 3d}"), "leaderElection.retryPeriod: must be from 100ms to 1h"),
        (minimal("manageJobsWithoutQueueName: 'no'"), "manageJobsWithoutQueueName: must be true or false"),
        (minimal("featureGates: {MultiKueue: 1}"), "featureGates.MultiKueue: must be true or false"),
        (minimal("integrations: {frameworks: [batch/jobs]}"), 'frameworks[0]: "batch/jobs"'),
        (minimal("integrations: {frameworks: batch/job}"), "integrations.frameworks: must be a list"),
        (minimal("integrations: {externalFrameworks: [Foo]}"), "integrations.externalFrameworks[0]: "),
        (minimal("", "v1alpha1"), "config.kueue.x-k8s.io/v1beta2"),
        (in_config_map("[1"), "data[controller_manager_config.yaml]"),
        (in_config_map("kind: Configuration"), "can be imported"),
        (minimal("") + "\n---\n" + minimal(""), "keep one"),
        (in_config_map(""), "data[controller_manager_config.yaml]: must be one YAML document"),
        (in_config_map(minimal("") + "\n---\n" + minimal("")), "must be one YAML document"),
        (in_config_map("[1, 2]"), "data[controller_manager_config.yaml]"),
        (in_config_map("just text"), "data[controller_manager_config.yaml]"),
        (minimal("featureGates: [MultiKueue]"), "featureGates: must be an object"),
        (minimal("resources: {transformations: 5}"), "resources.transformations: must be a list"),
        (minimal("manageJobsWithoutQueueName: {}"), "manageJobsWithoutQueueName: must be true or false"),
        (minimal("leaderElection: [1]"), "leaderElection: must be an object"),
        (minimal("fairSharing: {preemptionStrategies: LessThanInitialShare}"), "preemptionStrategies: must be a list"),
    ],
)
async def test_a_bad_value_has_the_path_of_its_field(sluice, tmp_path, text, message):
    file = tmp_path / "sluice.yaml"
    done = await sluice("import", "kueue", "-f", "-", "--config-out", str(file), stdin=text)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not file.exists()


async def test_an_unknown_field_is_told_with_a_similar_one(sluice):
    done = await sluice("import", "kueue", "-f", "-", stdin=minimal("waitForPodsReady: {timeOut: 5m}"))
    assert "UNKNOWN" in told(done.stdout.splitlines())["waitForPodsReady.timeOut"]
    assert "did you mean waitForPodsReady.timeout?" in done.stdout


@pytest.mark.parametrize(
    ("gate", "outcome"),
    [
        ("PartialAdmission: true", "not needed: always on"),
        ("LendingLimit: false", "NOT TAKEN: always on"),
        ("TASProfileMixed: true", "not needed: this is Kueue's default"),
        ("TASBalancedPlacement: true", "taken as topology.balancedPlacement"),
        ("TASBalancedPlacement: false", "not needed: this is Kueue's default"),
        ("TASProfileMixed: false", "NOT TAKEN: Sluice decides as Kueue does with the default of this gate, true"),
        ("TopologyAwareScheduling: true", "not needed: a flavor with a topologyName is placed by it"),
        ("FairSharingPreemptWithinNominal: true", "not needed: this is Kueue's default"),
        ("FairSharingPreemptWithinNominal: false", "NOT TAKEN: Sluice decides as Kueue does with the default of this "),
        ("PrioritizePreemptorWorkloads: true", "NOT TAKEN: Sluice decides as Kueue does with the default of this gate"),
        ("MultiplePreemptions: true", "not needed: this is Kueue's default"),
        ("PartialAdmision: true", "UNKNOWN: left out, as if it were not set; did you mean PartialAdmission?"),
        ("Unheard: true", "UNKNOWN: left out, as if it were not set"),
    ],
)
async def test_feature_gate_is_told_by_its_meaning_and_its_default(sluice, gate, outcome):
    done = await sluice("import", "kueue", "-f", "-", stdin=minimal(f"featureGates: {{{gate}}}"))
    assert told(done.stdout.splitlines())[f"featureGates.{gate.partition(':')[0]}"].startswith(outcome)


@pytest.mark.parametrize(
    ("version", "fields", "path"),
    [
        ("v1beta2", "waitForPodsReady: {enable: false}", "waitForPodsReady.enable"),
        ("v1beta2", "queueVisibility: {updateIntervalSeconds: 5}", "queueVisibility"),
        ("v1beta1", "resources: {quotaCheckStrategy: IgnoreUndeclared}", "resources.quotaCheckStrategy"),
    ],
)
async def test_field_of_another_version_is_told_and_has_no_effect(sluice, tmp_path, version, fields, path):
    file = tmp_path / "sluice.yaml"
    done = await sluice("import", "kueue", "-f", "-", "--config-out", str(file), stdin=minimal(fields, version))
    other = {"v1beta1": "v1beta2", "v1beta2": "v1beta1"}[version]
    assert told(done.stdout.splitlines())[path].endswith(
        f"in {version}: left out, as if it were not set; {other} has it"
    )
    assert (await effective(sluice, file)).keys() == {"integrations"}


async def test_duration_of_zero_is_kueues_default_where_kueue_takes_it_so(sluice, tmp_path):
    text = minimal("waitForPodsReady: {timeout: 0s, recoveryTimeout: 0s}\n"
                   "admissionFairSharing: {usageHalfLifeTime: 0s, usageSamplingInterval: 0s}\n")  # fmt: skip
    file = tmp_path / "sluice.yaml"
    done = await sluice("import", "kueue", "-f", "-", "--config-out", str(file), stdin=text)
    assert done.exit_code == 0, done.output
    settings = await effective(sluice, file)
    assert settings["waitForPodsReady"]["timeout"] == "1800s"
    assert settings["waitForPodsReady"]["recoveryTimeout"] == "0s", "no limit"
    assert settings["admissionFairSharing"]["usageHalfLifeTime"] == "0s", "past usage does not count"
    assert settings["admissionFairSharing"]["usageSamplingInterval"] == "300s"


# ------------------------------------------------------------------ the ConfigMap of a cluster

_READ = {"verbs": ["get", "list"]}
_QUEUES = {**_READ, "apiGroups": ["kueue.x-k8s.io"], "resources": ["*"]}
_JOBS = {**_READ, "apiGroups": ["batch"], "resources": ["jobs"]}
_CONTEXT = [
    {**_READ, "apiGroups": [""], "resources": ["namespaces", "limitranges"]},
    {**_READ, "apiGroups": ["scheduling.k8s.io", "node.k8s.io"], "resources": ["*"]},
]


@pytest.fixture
async def kueue(tmp_path):
    """A cluster with the kinds of Kueue's queues, and the configuration of Kueue; kubeconfigs of admin and alice."""
    async with Sandbox(controllers=False) as sandbox:
        admin = sandbox.local("admin")
        for plural, kind, scope in (
            ("resourceflavors", "ResourceFlavor", "Cluster"),
            ("clusterqueues", "ClusterQueue", "Cluster"),
            ("localqueues", "LocalQueue", "Namespaced"),
        ):
            schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
            names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
            versions = [{"name": "v1beta2", "served": True, "storage": True, "schema": schema}]
            note = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/kueue/pull/1"}
            metadata = {"name": f"{plural}.kueue.x-k8s.io", "annotations": note}
            spec = {"group": "kueue.x-k8s.io", "scope": scope, "names": names, "versions": versions}
            await admin.create("customresourcedefinitions", "", {"metadata": metadata, "spec": spec})
        await admin.create("namespaces", "", {"metadata": {"name": "kueue-system"}})
        for user in ("admin", "alice"):
            sandbox.write_kubeconfig(tmp_path / user, user)
        yield sandbox


async def configured(sandbox, text, *, namespace="kueue-system"):
    """Create Kueue's ConfigMap."""
    data = {"controller_manager_config.yaml": text}
    body = {"metadata": {"name": "kueue-manager-config"}, "data": data}
    await sandbox.local("admin").create("configmaps", namespace, body)


async def granted(sandbox, *rules):
    """Grant alice rights in all namespaces."""
    await allow(sandbox.local("admin"), "alice", *rules)


async def test_import_from_a_cluster_reads_the_configuration_of_kueue_there(sluice, kueue, tmp_path):
    await configured(kueue, V1BETA1)
    call = ("import", "kueue", "--kubeconfig", str(tmp_path / "admin"))
    shown = await sluice(*call)
    assert shown.exit_code == 0, shown.output
    account = told(shown.stdout.splitlines())
    assert account["leaderElection.leaseDuration"] == "taken as leaseDuration, in seconds"
    assert "--config-out FILE writes them" in shown.stdout
    file = tmp_path / "sluice.yaml"
    written = await sluice(*call, "--config-out", str(file))
    assert written.exit_code == 0, written.output
    assert (await effective(sluice, file))["leaseDuration"] == 30


async def test_configuration_is_found_in_another_namespace(sluice, kueue, tmp_path):
    await configured(kueue, minimal("manageJobsWithoutQueueName: true"), namespace="default")
    shown = await sluice("import", "kueue", "--kubeconfig", str(tmp_path / "admin"))
    assert "ConfigMap default/kueue-manager-config" in shown.stdout
    assert told(shown.stdout.splitlines())["manageJobsWithoutQueueName"] == "taken"


@pytest.mark.parametrize("may_read", [True, False])
async def test_configuration_is_imported_if_the_user_may_read_it(sluice, kueue, tmp_path, may_read):
    await configured(kueue, minimal("manageJobsWithoutQueueName: true"))
    map_rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}
    own = [{**map_rule, "resourceNames": ["kueue-manager-config"]}] if may_read else []
    await granted(kueue, _QUEUES, _JOBS, *_CONTEXT, *own)
    call = ("import", "kueue", "--kubeconfig", str(tmp_path / "alice"))
    shown = await sluice(*call)
    assert shown.exit_code == 0, shown.output
    assert ("manageJobsWithoutQueueName  taken" in shown.stdout) is may_read
    if not may_read:
        assert "there is no ConfigMap kueue-manager-config with Kueue's configuration that you may read" in shown.stdout
        refused = await sluice(*call, "--config-out", str(tmp_path / "sluice.yaml"))
        assert (refused.exit_code, "--config-out: there is no ConfigMap" in refused.stderr) == (1, True)


async def test_queues_and_configuration_may_be_in_the_same_files(sluice, tmp_path):
    flavor = "---\n{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: spot}}\n"
    file = tmp_path / "sluice.yaml"
    call = ("import", "kueue", "-f", "-", "--config-out", str(file), "--yes")
    done = await sluice(*call, stdin=minimal("") + flavor)
    assert done.stdout.splitlines()[-1] == "1 create: done", done.output
    assert file.exists()
    again = await sluice(*call, stdin=minimal("") + flavor)
    assert (again.exit_code, f"{file} exists already" in again.stderr) == (2, True)


async def test_import_that_fails_leaves_no_file_that_would_be_in_its_way_when_it_is_repeated(tmp_path):
    flavor = "---\n{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: spot}}\n"
    file = tmp_path / "sluice.yaml"
    nowhere = Sluice({"SLUICE_SERVER": "http://127.0.0.1:1", "SLUICE_TOKEN": "t"})
    done = await nowhere("import", "kueue", "-f", "-", "--config-out", str(file), stdin=minimal("") + flavor)
    assert (done.exit_code, "cannot be reached" in done.stderr) == (1, True)
    assert not file.exists()


async def test_settings_of_an_import_without_a_configuration_have_no_file(sluice, tmp_path):
    flavor = "{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: spot}}"
    done = await sluice("import", "kueue", "-f", "-", "--config-out", str(tmp_path / "s.yaml"), stdin=flavor)
    assert (done.exit_code, "--config-out" in done.stderr) == (2, True)


async def test_other_commands_name_the_import(sluice, tmp_path):
    file = tmp_path / "kueue.yaml"
    file.write_text(minimal(""))
    for command in (("apply", "-f"), ("config", "check")):
        done = await sluice(*command, str(file))
        assert done.exit_code != 0
        assert "sluice import kueue -f" in done.stderr
