"""Translation of Kueue's own configuration (`config.kueue.x-k8s.io`) to one of Sluice, and an account of its fields."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import yaml
from pydantic import ValidationError

from admission.cli.arguments.foreign import KUEUE_SETTINGS_KEY, api_group
from admission.cli.configuration.integrations import IntegrationsSettings
from admission.cli.configuration.policy_settings import (
    AdmissionFairSharingSettings,
    FairSharingSettings,
    ResourcesSettings,
    WaitForPodsReadySettings,
)
from admission.cli.errors import Unreadable
from admission.kinds import BATCH_JOB, GROUPED, JOB_SET, LABELLED, TRAIN_JOB, frameworks_known
from admission.model.base import LabelSelector
from admission.model.durations import parse_duration
from admission.model.errors import InvalidObject
from admission.model.manifests import API_VERSION, faults
from admission.model.reading import parse_documents
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.model.base import Model
    from admission.model.manifests import Document


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a field: `outcome`, a phrase for users."""

    outcome: str
    is_taken: bool = False
    seconds_as: str = ""
    """Name of Sluice's setting that takes this duration in seconds."""

    @classmethod
    def taken(cls, how: str = "", seconds_as: str = "") -> Self:
        """Return the fate of a field that Sluice has, too; `how`: under another name, or with a difference."""
        return cls(f"taken {how}".strip(), is_taken=True, seconds_as=seconds_as)

    @classmethod
    def meaningless(cls, why: str) -> Self:
        """Return the fate of a field that Sluice does not need."""
        return cls(f"not needed: {why}")

    @classmethod
    def not_taken(cls, what_to_do: str) -> Self:
        """Return the fate of a field whose effect Sluice does not have, or has elsewhere."""
        return cls(f"NOT TAKEN: {what_to_do}")

    @classmethod
    def unknown(cls, near: str) -> Self:
        """Return the fate of a field that Kueue does not have; `near` is a similar one."""
        hint = f"; did you mean {near}?" if near else ""
        return cls(f"UNKNOWN: left out, as if it were not set{hint}")

    @classmethod
    def of_another_version(cls, version: str, known: str) -> Self:
        """Return the fate of a field that Kueue has, but not in this version of its configuration."""
        return cls(f"UNKNOWN in {version}: left out, as if it were not set; {known} has it")


_TAKEN: Final = Fate.taken()
_ADDRESS: Final = Fate.meaningless("the chart sets the ports; outside a cluster: webhookAddress, apiAddress")
_CERTIFICATES: Final = Fate.meaningless("Sluice makes and renews its certificates")
_HEALTH: Final = Fate.meaningless("/healthz and /readyz are on apiAddress")
_LEASE: Final = Fate.meaningless("in a pod, replicas elect a leader by the Lease of the setting lease")
_COPIES: Final = Fate.meaningless("Sluice deletes copies that no Job needs at once, and signs its label of origin")
_ORDER: Final = Fate.not_taken(
    "all clusters of the flavors are tried at once; order, clusters and spilloverAfterSeconds in spec.dispatch of a "
    "ClusterQueue order them"
)
_QUEUE_VISIBILITY: Final = Fate.meaningless("the API and sluice get workloads list all that waits, with its position")
_RETENTION: Final = Fate.meaningless(
    "finished workloads are rows of the database, not objects; the setting retention.finished is 90d"
)
_PODS_BY_LABEL: Final = Fate.not_taken(
    "pods with a queue label are queued in all namespaces; for those without one, set managedJobsNamespaceSelector"
)
_TLS: Final = Fate.not_taken("Sluice's listeners accept TLS 1.2 and newer, with the ciphers of its OpenSSL")

FIELDS: Final[Mapping[str, Fate]] = {
    "namespace": Fate.meaningless("Sluice runs in the namespace into which it is installed"),
    "manageJobsWithoutQueueName": _TAKEN,
    "managedJobsNamespaceSelector": _TAKEN,
    "waitForPodsReady.enable": _TAKEN,
    "waitForPodsReady.timeout": _TAKEN,
    "waitForPodsReady.recoveryTimeout": _TAKEN,
    "waitForPodsReady.blockAdmission": _TAKEN,
    "waitForPodsReady.requeuingStrategy.timestamp": _TAKEN,
    "waitForPodsReady.requeuingStrategy.backoffLimitCount": _TAKEN,
    "waitForPodsReady.requeuingStrategy.backoffBaseSeconds": _TAKEN,
    "waitForPodsReady.requeuingStrategy.backoffMaxSeconds": _TAKEN,
    "fairSharing.enable": _TAKEN,
    "fairSharing.preemptionStrategies": _TAKEN,
    "admissionFairSharing.usageHalfLifeTime": _TAKEN,
    "admissionFairSharing.usageSamplingInterval": _TAKEN,
    "admissionFairSharing.resourceWeights": _TAKEN,
    "resources.excludeResourcePrefixes": _TAKEN,
    "resources.quotaCheckStrategy": _TAKEN,
    "resources.transformations": _TAKEN,
    "resources.deviceClassMappings": _TAKEN,
    "integrations.frameworks": _TAKEN,
    "integrations.externalFrameworks": _TAKEN,
    "integrations.labelKeysToCopy": Fate.meaningless(
        "a workload is not a copy of its Job: select by labels of the Job"
    ),
    "integrations.podOptions.namespaceSelector": _PODS_BY_LABEL,
    "integrations.podOptions.podSelector": _PODS_BY_LABEL,
    "leaderElection.leaderElect": _LEASE,
    "leaderElection.resourceName": _LEASE,
    "leaderElection.resourceNamespace": _LEASE,
    "leaderElection.resourceLock": _LEASE,
    "leaderElection.leaseDuration": Fate.taken("as leaseDuration, in seconds", seconds_as="leaseDuration"),
    "leaderElection.renewDeadline": Fate.taken("as renewDeadline, in seconds", seconds_as="renewDeadline"),
    "leaderElection.retryPeriod": Fate.taken("as retryPeriod, in seconds", seconds_as="retryPeriod"),
    "internalCertManagement.enable": Fate.meaningless(
        "Sluice makes and renews its certificates; the chart's certificates.issuer: cert-manager leaves it to that"
    ),
    "internalCertManagement.webhookServiceName": _CERTIFICATES,
    "internalCertManagement.webhookSecretName": _CERTIFICATES,
    "webhook.port": _ADDRESS,
    "webhook.host": _ADDRESS,
    "webhook.certDir": _CERTIFICATES,
    "metrics.bindAddress": Fate.meaningless("/metrics is on apiAddress"),
    "metrics.enableClusterQueueResources": Fate.meaningless("these metrics are always exported"),
    "metrics.localQueueMetrics": Fate.meaningless("metrics of LocalQueues are always exported"),
    "metrics.customLabels": Fate.not_taken(
        "labels of queues are metrics of their own (sluice_cluster_queue_labels, ...), which a query joins"
    ),
    "health.healthProbeBindAddress": _HEALTH,
    "health.readinessEndpointName": _HEALTH,
    "health.livenessEndpointName": _HEALTH,
    "pprofBindAddress": Fate.meaningless("there is no profiler of Go; sluice debug bundle collects what support needs"),
    "controller.groupKindConcurrency": Fate.meaningless("one event loop handles all kinds, without workers"),
    "controller.cacheSyncTimeout": Fate.meaningless("a start waits until the cluster has been listed"),
    "clientConnection.qps": Fate.meaningless("requests are not limited: there are two or three for each Job"),
    "clientConnection.burst": Fate.meaningless("requests are not limited: there are two or three for each Job"),
    "tls.minVersion": _TLS,
    "tls.cipherSuites": _TLS,
    "tls.curvePreferences": _TLS,
    "multiKueue.gcInterval": _COPIES,
    "multiKueue.origin": _COPIES,
    "multiKueue.workerLostTimeout": Fate.taken("as clusterLostTimeout, in seconds", seconds_as="clusterLostTimeout"),
    "multiKueue.dispatcherName": _ORDER,
    "multiKueue.externalFrameworks": Fate.not_taken(
        "a custom kind with a field for its controller is dispatched as it is described (docs/kinds/user-defined.md)"
    ),
    "multiKueue.clusterProfile": Fate.not_taken(
        "ClusterProfiles are not read: sluice cluster join makes the credentials, or write a kubeconfig with the exec "
        "plugin of the provider, and a Cluster that names the file"
    ),
    "multiKueue.incrementalDispatcherConfig": _ORDER,
    "objectRetentionPolicies.workloads.afterFinished": _RETENTION,
    "objectRetentionPolicies.workloads.afterDeactivatedByKueue": Fate.not_taken(
        "deactivated workloads stay until their Job is deleted; sluice get workloads lists them"
    ),
    "queueVisibility.updateIntervalSeconds": _QUEUE_VISIBILITY,
    "queueVisibility.clusterQueues.maxCount": _QUEUE_VISIBILITY,
    "visibilityServer.bindAddress": _QUEUE_VISIBILITY,
    "visibilityServer.bindPort": _QUEUE_VISIBILITY,
}
"""Path of a field of v1beta1 or v1beta2 -> its fate; objects that are not divided further are here as a whole."""

_V1BETA1, _V1BETA2 = frozenset({"v1beta1"}), frozenset({"v1beta2"})
VERSIONS: Final[Mapping[str, frozenset[str]]] = {
    "fairSharing.enable": _V1BETA1,
    "waitForPodsReady.enable": _V1BETA1,
    "integrations.podOptions": _V1BETA1,
    "queueVisibility": _V1BETA1,
    "multiKueue.clusterProfile": _V1BETA2,
    "multiKueue.incrementalDispatcherConfig": _V1BETA2,
    "resources.quotaCheckStrategy": _V1BETA2,
    "visibilityServer": _V1BETA2,
}
"""Fields that only one version of Kueue's configuration has, or objects with their fields -> that version."""

_WITHOUT: Final = {
    "MultiKueueClusterProfile": "make the credentials of each cluster by sluice cluster join, or write a kubeconfig "
    "with the exec plugin of the provider, and a Cluster that names the file",
    "MultiKueueIncrementalDispatcher": "dispatch.clusters and spilloverAfterSeconds of a ClusterQueue order them",
    "MultiKueueManagerQuotaAutomation": "all clusters share the quotas of the hub; their flavors may follow the nodes",
    "MultiKueue": "ClusterQueues dispatch (docs/tasks/dispatch.md), and Sluice has no gate for its details",
    "ElasticJobs": "workloads scale without an annotation, a running Job gets no more pods (docs/kinds/rules.md)",
    "PriorityBoost": "the priority is that of the priority class; sluice prioritize changes it",
    "ManagedJobsNamespaceSelectorAlwaysRespected": "Jobs with a queue label are queued in all namespaces",
    "PropagateBatchJobLabels": "a workload is not a copy of its Job",
}
"""Beginning of a feature gate's name -> what Sluice does instead, if the gate is on."""
_OWN_SETTING: Final = {
    "AdmissionFairSharing": "the setting admissionFairSharing enables it",
    "FailureRecoveryPolicy": "the setting failureRecovery enables it",
    **dict.fromkeys(
        (
            "DynamicResourceAllocation",
            "DRAExtendedResources",
            "KueueDRAIntegration",
            "KueueDRAIntegrationExtendedResource",
            "KueueDRAIntegrationPartitionableDevices",
            "KueueDRAIntegrationConsumableCapacity",
        ),
        "the setting resources.deviceClassMappings has this effect",
    ),
    "KueueDRARejectWorkloadsWhenDRADisabled": "the setting resources.unmappedDeviceClasses has this effect",
    "DisableWaitForPodsReady": "waitForPodsReady is off unless it is set",
    "LocalQueueDefaulting": "the LocalQueue default is for managed namespaces only (manageJobsWithoutQueueName)",
    "QuotaCheckStrategy": "the setting resources.quotaCheckStrategy has this effect",
    "ConfigurableResourceTransformations": "the setting resources.transformations has this effect",
    "ObjectRetentionPolicies": "the setting retention has this effect",
    "SparkApplicationIntegration": "the entry in integrations.frameworks enables it",
    "TLSOptions": "see the fields of tls",
    "TopologyAwareScheduling": "a flavor with a topologyName is placed by it, all others are not",
    "CustomMetricLabels": "see metrics.customLabels",
    "ManagedJobsNamespaceSelector": "the setting managedJobsNamespaceSelector has this effect",
}


TOPOLOGY_GATES: Final = {
    "TASBalancedPlacement": "balancedPlacement",
    "TASRespectNodeAffinityPreferred": "respectNodeAffinityPreferred",
}
"""Feature gate -> field of the setting `topology` that has its effect."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ALWAYS_ON: Final = _names(
    """
    AdmissionGatedBy FlavorFungibility HierarchialCohorts HierarchicalCohorts LendingLimit LocalQueueMetrics
    MetricsForCohorts PartialAdmission PrioritySortingWithinCohort ReclaimablePods VisibilityOnDemand
    WorkloadPriorityClassDefaulting
    """
)
"""Feature gates of which Sluice has the feature; it cannot be turned off."""
_ON_BY_DEFAULT: Final = _names(
    """
    AdmissionFairSharing AdmissionGatedBy AssignQueueLabelsForPods CleanupProvisioningRequestsOnEviction
    ConfigurableResourceTransformations DeferRayServiceFinalizationForRedisCleanup ElasticJobsViaWorkloadSlices
    FairSharingPreemptWithinNominal FairSharingPrioritizeNonBorrowing FinishOrphanedWorkloads FlavorFungibility
    FlavorFungibilityImplicitPreferenceDefault FlavorFungibilityPreserveScanProgress HierarchialCohorts
    HierarchicalCohorts KueueDRAIntegration KueueDRAIntegrationExtendedResource
    KueueDRAIntegrationPartitionableDevices KueueDRARejectWorkloadsWhenDRADisabled LWSImmutableGroupSize LendingLimit
    LocalQueueDefaulting LocalQueueMetrics ManagedJobsNamespaceSelector ManagedJobsNamespaceSelectorAlwaysRespected
    MetricForWorkloadCreationLatency MetricsForCohorts MultiKueue MultiKueueAdaptersForCustomJobs
    MultiKueueAllowInsecureKubeconfigs MultiKueueBatchJobWithManagedBy MultiKueueIncrementalDispatcherConfig
    MultiKueueIncrementalDispatcherRespectConfigOrder MultiKueueKubeConfigPathValidation
    MultiKueueRedoAdmissionOnEvictionInWorker MultiKueueRemoteSpecSync MultiKueueWaitForWorkloadAdmitted
    MultiplePreemptions ObjectRetentionPolicies PartialAdmission PodIntegrationValidateGroupOwner
    PrioritySortingWithinCohort PropagateBatchJobLabelsToWorkload ProvisioningACC QuotaCheckStrategy ReclaimablePods
    RecomputeAssignmentUponPreemptionTargetsOverlap RemoveFinalizersWithStrictPatch SanitizePodSets
    SchedulingEquivalenceHashing SkipAncestorCheckForDeletedWorkloads SkipFinalizersForPodsSuspendedByParent
    SkipReassignmentForPodOwnedWorkloads TASAssignmentsEncodingByHostnamePrefix TASCacheNodeMatchResults
    TASCacheTopologyTree TASCachingRemainingResources TASFailedNodeReplacement TASFailedNodeReplacementFailFast
    TASHandleOverlappingFlavors TASMultiLayerTopology TASProfileMixed TASRecomputeAssignmentWithinSchedulingCycle
    TASReplaceNodeOnNodeTaints TASReplaceNodeOnPodTermination TASValidateWorkloadSliceSize TLSOptions
    TopologyAwareScheduling UnadmittedWorkloadsObservability ValidateRayAndSparkJobUpdates VectorizedResourceRequests
    VisibilityOnDemand WorkloadIdentifierAnnotations WorkloadPriorityClassDefaulting WorkloadResourceRequestsSummary
    WorkloadValidateResourcesAreNonNegative WorkloadValidationForPodSetMetadata
    """
)
"""Feature gates that are on unless they are set; those that Kueue does not have any more, with their last default.

Of all versions from 0.2 to 0.19, by pkg/features/kube_features.go, as those below.
"""
_OFF_BY_DEFAULT: Final = _names(
    """
    AdmissionCheckValidationRules ConcurrentAdmission CustomMetricLabels DRAExtendedResources DisableWaitForPodsReady
    DynamicResourceAllocation ElasticJobsViaWorkloadSlicesWithTAS ExposeFlavorsInLocalQueue FailureRecoveryPolicy
    FastQuotaReleaseInPodIntegration KeepQuotaForProvReqRetry KueueDRAIntegrationConsumableCapacity
    MultiKueueClusterProfile MultiKueueManagerQuotaAutomation MultiKueueOrchestratedPreemption
    PrioritizePreemptorWorkloads PriorityBoost QueueVisibility RejectUpdatesToCQWithInvalidOnFlavors
    SchedulerLibraryIntegration SchedulerLongRequeueInterval SchedulerTimestampPreemptionBuffer ShortWorkloadNames
    SparkApplicationIntegration TASBalancedPlacement TASImplicitDefaultUnconstrained TASLeastAllocated
    TASMostFreeCapacity TASProfileLeastFreeCapacity TASProfileMostFreeCapacity
    TASReplaceNodeDueToNotReadyOverFixedTime TASRespectNodeAffinityPreferred UnadmittedWorkloadsExplicitStatus
    WorkloadRequestUseMergePatch
    """
)
"""Feature gates that are off unless they are set."""


def fate_of_gate(name: str, *, enabled: bool) -> Fate:
    """Return what becomes of a feature gate."""
    known = _ON_BY_DEFAULT | _OFF_BY_DEFAULT
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1) if len(name) < 100 else []
        return Fate.unknown(near[0] if near else "")
    if name in _OWN_SETTING:
        return Fate.meaningless(_OWN_SETTING[name])
    if name in _ALWAYS_ON:
        return Fate.meaningless("always on") if enabled else Fate.not_taken("always on: it cannot be turned off")
    without = next((text for start, text in _WITHOUT.items() if name.startswith(start)), "")
    if without:
        return Fate.not_taken(without) if enabled else Fate.meaningless("Sluice does not have it")
    default = name in _ON_BY_DEFAULT
    if enabled == default:
        return Fate.meaningless("this is Kueue's default, as which Sluice decides")
    return Fate.not_taken(f"Sluice decides as Kueue does with the default of this gate, {str(default).lower()}")


_VERSIONS: Final = ("v1beta2", "v1beta1")
_SECTIONS: Final[Mapping[str, type[Model]]] = {
    "managedJobsNamespaceSelector": LabelSelector,
    "waitForPodsReady": WaitForPodsReadySettings,
    "fairSharing": FairSharingSettings,
    "admissionFairSharing": AdmissionFairSharingSettings,
    "resources": ResourcesSettings,
    "integrations": IntegrationsSettings,
}
"""Fields whose content has Kueue's structure in Sluice, too -> the model that validates it."""
_DEFAULTS_OF_V1BETA1: Final = {"timeout": "5m", "blockAdmission": True}
"""Defaults of an enabled `waitForPodsReady` of v1beta1 that are others in v1beta2 and in Sluice."""

_EXTERNAL: Final = "integrations.externalFrameworks"


@dataclass(slots=True)
class TranslatedSettings:
    """A configuration of Sluice, and what became of each field of Kueue's."""

    source: str
    settings: dict[str, Any] = field(default_factory=dict)
    account: list[tuple[str, Fate]] = field(default_factory=list)
    """Path of a field, and its fate."""

    def lines(self) -> list[str]:
        """Return the account, one line for each field."""
        width = max((len(path) for path, _ in self.account), default=0)
        rows = [f"{path:{width}}  {fate.outcome}" for path, fate in self.account]
        return [f"{self.source}: what became of Kueue's settings", *rows]

    def text(self) -> str:
        """Return the configuration file, with the account as comments."""
        head = "".join(f"# {line}\n" for line in self.lines())
        body = {"apiVersion": API_VERSION, "kind": "Configuration", **self.settings}
        return f"{head}{yaml.safe_dump(body, sort_keys=False)}"


def translate(document: Document) -> TranslatedSettings:
    """Translate Kueue's configuration, which may be in a ConfigMap.

    Raises Unreadable for an unknown version, and for invalid values, with the path of each.
    """
    source, body = _configuration(document)
    version = str(body.get("apiVersion")).rpartition("/")[2]
    if api_group(body) != "config.kueue.x-k8s.io" or version not in _VERSIONS or body.get("kind") != "Configuration":
        given = f"{clean(str(body.get('apiVersion')))} {clean(str(body.get('kind')))}"
        known = " and ".join(f"config.kueue.x-k8s.io/{each}" for each in _VERSIONS)
        raise Unreadable(f"{source}: is {given}; the Configuration of {known} can be imported")
    translation = TranslatedSettings(source)
    content = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    try:
        _SettingsReader(translation, version).read(content)
    except InvalidObject as error:
        raise Unreadable(str(error)) from error
    return translation


def _configuration(document: Document) -> tuple[str, Mapping[str, Any]]:
    """Return source and content of the configuration. Raises Unreadable if the ConfigMap does not contain one."""
    if document.body.get("kind") != "ConfigMap":
        return document.source, document.body
    source = f"{document.source}: data[{KUEUE_SETTINGS_KEY}]"
    text = document.body["data"][KUEUE_SETTINGS_KEY]
    try:
        found = parse_documents(text if isinstance(text, str) else "", source=source)
    except InvalidObject as error:
        raise Unreadable(str(error)) from error
    if len(found) != 1:
        raise Unreadable(f"{source}: must be one YAML document, the Configuration of Kueue")
    return source, found[0].body


class _SettingsReader:
    """Reader of one configuration: sorts its fields into what Sluice has, and what it does not have."""

    def __init__(self, translation: TranslatedSettings, version: str) -> None:
        self._translation = translation
        self._version = version
        self._causes: list[tuple[str, str]] = []

    def read(self, content: Mapping[str, Any]) -> None:
        """Translate the fields. Raises InvalidObject with the path of each invalid value."""
        settings = self._translation.settings
        self._walk(content, "", settings)
        self._adapt(settings)
        for name, model in _SECTIONS.items():
            if name in settings:
                self._validate(settings[name], name, model)
        if self._causes:
            raise InvalidObject(self._causes, subject=self._translation.source)

    def _walk(self, values: Mapping[str, Any], prefix: str, into: dict[str, Any]) -> None:
        for key, value in values.items():
            path = f"{prefix}{key}"
            if value is None:
                continue
            if self._version not in VERSIONS.get(path, (self._version,)):
                (known,) = VERSIONS[path]
                self._tell(path, Fate.of_another_version(self._version, known))
            elif key == "featureGates" and not prefix:
                self._feature_gates(value)
            elif (fate := FIELDS.get(path)) is None and any(known.startswith(f"{path}.") for known in FIELDS):
                if isinstance(value, Mapping):
                    inner: dict[str, Any] = {}
                    self._walk(value, f"{path}.", inner)
                    if inner or (path in _SECTIONS and not value):
                        into[key] = inner
                else:
                    self._causes.append((path, "must be an object"))
            elif fate is None:
                self._tell(path, Fate.unknown(_similar(path)))
            elif fate.seconds_as:
                self._seconds(path, value, fate)
            else:
                if path != _EXTERNAL:  # told one by one
                    self._tell(path, fate)
                if fate.is_taken:
                    into[key] = value

    def _feature_gates(self, gates: object) -> None:
        if not isinstance(gates, Mapping):
            self._causes.append(("featureGates", "must be an object"))
            return
        for name, enabled in gates.items():
            path = f"featureGates.{name}"
            if enabled is True and name in TOPOLOGY_GATES:
                setting = TOPOLOGY_GATES[name]
                self._translation.settings.setdefault("topology", {})[setting] = True
                self._tell(path, Fate.taken(f"as topology.{setting}"))
            elif isinstance(enabled, bool):
                self._tell(path, fate_of_gate(str(name), enabled=enabled))
            else:
                self._causes.append((clean(path), "must be true or false"))

    def _seconds(self, path: str, value: object, fate: Fate) -> None:
        try:
            seconds = parse_duration(value)
            if not 0.1 <= seconds <= 3600:
                raise ValueError("must be from 100ms to 1h")
        except ValueError as error:
            self._causes.append((path, str(error)))
            return
        self._translation.settings[fate.seconds_as] = seconds
        self._tell(path, fate)

    def _adapt(self, settings: dict[str, Any]) -> None:
        """Write out Kueue's defaults where those of Sluice differ, and what a kind requires in Sluice."""
        manages = settings.get("manageJobsWithoutQueueName", False)
        if not isinstance(manages, bool):
            self._causes.append(("manageJobsWithoutQueueName", "must be true or false"))
        waiting = settings.get("waitForPodsReady")
        if self._version == "v1beta1":
            for name in ("waitForPodsReady", "fairSharing"):
                if name in settings:  # the default is true in Sluice
                    settings[name] = {"enable": False, **settings[name]}
            if waiting is not None and settings["waitForPodsReady"]["enable"] is True:
                given = settings["waitForPodsReady"]
                added = {name: value for name, value in _DEFAULTS_OF_V1BETA1.items() if name not in given}
                settings["waitForPodsReady"] = {**given, **added}
                for name in added:
                    self._tell(f"waitForPodsReady.{name}", Fate.taken("from the defaults of v1beta1"))
        elif waiting is None:
            self._tell(
                "waitForPodsReady", Fate.not_taken("is not in the file: off; Kueue 0.19 waits 30m: see the docs")
            )
        if (settings.get("fairSharing") or {}).get("preemptionStrategies") == []:
            del settings["fairSharing"]["preemptionStrategies"]  # its default
        for section, name in (("waitForPodsReady", "timeout"), ("admissionFairSharing", "usageSamplingInterval")):
            if _is_zero((settings.get(section) or {}).get(name)):
                del settings[section][name]  # its default
        integrations = settings.setdefault("integrations", {})
        if not integrations.get("frameworks"):
            integrations["frameworks"] = [BATCH_JOB]  # Kueue's default
        if isinstance(integrations["frameworks"], list):
            self._frameworks(integrations)

    def _frameworks(self, integrations: dict[str, Any]) -> None:
        names = [*integrations["frameworks"]]
        external = integrations.pop(_EXTERNAL.partition(".")[2], [])
        if not isinstance(external, list):
            self._causes.append((_EXTERNAL, "must be a list"))
            external = []
        for index, name in enumerate(external):
            path = f"{_EXTERNAL}[{index}]"
            kind, dot, rest = name.partition(".") if isinstance(name, str) else ("", "", "")
            group = rest.partition(".")[2]
            if not (kind and dot and group):
                self._causes.append((path, f'"{name}" is not KIND.VERSION.GROUP, such as Foo.v1.example.com'))
            elif (ours := f"{group}/{kind.lower()}") in frameworks_known():
                names += [] if ours in names else [ours]
                self._tell(path, Fate.taken(f"as integrations.frameworks: {ours}"))
            else:
                text = f"describe {clean(kind)} in integrations.kinds (docs/kinds/user-defined.md)"
                self._tell(path, Fate.not_taken(text))
        for needing, needed in ((TRAIN_JOB, JOB_SET), *((each, "pod") for each in (*GROUPED, *LABELLED))):
            if needing in names and needed not in names:
                names.append(needed)
                self._tell("integrations.frameworks", Fate.taken(f"and {needed} is added, which {needing} needs"))
        integrations["frameworks"] = names

    def _validate(self, values: object, name: str, model: type[Model]) -> None:
        try:
            model.model_validate(values, by_alias=True, by_name=False)
        except ValidationError as error:
            self._causes += [(".".join(filter(None, (name, path))), message) for path, message in faults(error)]

    def _tell(self, path: str, fate: Fate) -> None:
        self._translation.account.append((clean(path), fate))


def _is_zero(duration: object) -> bool:
    try:
        return parse_duration(duration) == 0
    except ValueError:
        return False


def _similar(path: str) -> str:
    near = difflib.get_close_matches(path, FIELDS, n=1) if len(path) < 100 else []
    return near[0] if near else ""


def only_one(documents: Sequence[Document]) -> Document | None:
    """Return the configuration among the documents, if there is one. Raises Unreadable if there are several."""
    if len(documents) > 1:
        raise Unreadable(f"{documents[0].source} and {documents[1].source} are both Kueue's configuration; keep one")
    return documents[0] if documents else None
