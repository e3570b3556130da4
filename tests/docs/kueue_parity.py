"""Table of Kueue's features with the test that shows each in Sluice: writes `docs/kueue-parity.md`.

python -m tests.docs.kueue_parity
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.benchmarks.measure import REPOSITORY

PAGE: Final = REPOSITORY / "docs" / "kueue-parity.md"


class Row(NamedTuple):
    feature: str
    shown: str
    """`FILE::TEST` under `tests`; without: Sluice does not have it as Kueue has it, and this is why."""

    @property
    def is_shown(self) -> bool:
        return "::" in self.shown


_EVENTS: Final = "engine/test_engine_events.py::"
_CYCLE: Final = "engine/test_engine_cycle.py::"
_CHECKS: Final = "controller/test_admission_checks.py::"
_READY: Final = "controller/test_pods_ready.py::"
_PLACED: Final = "controller/test_way_of_a_placed_job.py::"
_VICTIMS: Final = "engine/test_engine_preemption.py::"
_CONCURRENT: Final = "engine/test_engine_concurrent.py::"
_NODES: Final = "controller/test_provisioning.py::"
_CLAIMS: Final = "controller/test_devices.py::"
_GET: Final = "cli/test_cli_get.py::"
_RECORDED: Final = "vectors/test_vectors_recorded.py::test_decisions_of_a_recorded_scenario_match_the_reference"
_CASES: Final = "vectors/test_vectors_cases.py::test_decision_of_a_single_case_matches_the_reference"
_METRICS: Final = "cli/test_cli_metrics.py::test_each_kueue_metric_is_documented_with_its_labels_or_as_missing"
_DISPATCH: Final = (
    "Jobs, and other kinds that have a `managedBy`, used or not, are [dispatched](tasks/dispatch.md); the "
    "rest runs in the cluster in which it was created; [clusters share one quota](tasks/clusters.md)"
)

TABLES: Final = {
    "ClusterQueues": (
        Row("`resourceGroups`, flavors", f"{_CYCLE}test_a_share_counts_all_flavors_of_a_resource"),
        Row("`nominalQuota`", "model/test_manifests.py::test_cluster_queue_fields_are_parsed_into_exact_amounts"),
        Row("`borrowingLimit`", f"{_CYCLE}test_reserved_quota_does_not_exceed_the_borrowing_limit"),
        Row("`lendingLimit`", f"{_EVENTS}test_cohort_lends_idle_quota_up_to_the_lending_limit"),
        Row("`cohortName`, `cohort` of v1beta1", "model/test_manifests.py::test_v1beta1_fields_are_converted"),
        Row("`queueingStrategy`", f"{_EVENTS}test_strict_fifo_blocks_behind_its_head_and_best_effort_does_not"),
        Row("SchedulingEquivalenceHashing", f"{_EVENTS}test_raised_quota_admits_all_pending_workloads_of_a_shape"),
        Row("`namespaceSelector`", f"{_EVENTS}test_namespace_selector_restricts_admission_to_matching_namespaces"),
        Row("`flavorFungibility.whenCanBorrow`, `whenCanPreempt`", _RECORDED),
        Row("`flavorFungibility.preference`", _CASES),
        Row("FlavorFungibilityPreserveScanProgress", _RECORDED),
        Row("`preemption.withinClusterQueue`", f"{_VICTIMS}test_only_newer_workloads_of_equal_priority_are_targets"),
        Row("`preemption.reclaimWithinCohort`", f"{_VICTIMS}test_cohort_within_its_quota_has_no_targets"),
        Row(
            "`preemption.borrowWithinCohort.policy`",
            f"{_VICTIMS}test_borrow_within_cohort_decides_between_own_and_borrowing_targets",
        ),
        Row(
            "`preemption.borrowWithinCohort.maxPriorityThreshold`",
            f"{_VICTIMS}test_borrowing_preemptor_has_no_targets_above_the_priority_threshold",
        ),
        Row("Choice and order of victims, PrioritySortingWithinCohort", _CASES),
        Row(
            "Preemption protection (KEP 9876, open)",
            "engine/test_engine_protection.py::test_claims_of_other_queues_have_their_own_time",
        ),
        Row("`stopPolicy`", f"{_EVENTS}test_stopped_cluster_queue_admits_nothing_and_drains_with_hold_and_drain"),
        Row("`admissionChecksStrategy`", f"{_CHECKS}test_only_checks_for_the_assigned_flavor_are_requested"),
        Row("`fairSharing.weight`", f"{_CYCLE}test_queues_of_zero_weight_come_last_ordered_by_usage"),
        Row(
            "`admissionScope.admissionMode`",
            "engine/test_engine_usage.py::test_local_queue_with_less_usage_comes_first_despite_lower_priority",
        ),
        Row(
            "`concurrentAdmissionPolicy`, mode `TryPreferredFlavors` (alpha)",
            "controller/test_concurrent_admission.py::test_job_moves_when_the_preferred_flavor_is_free",
        ),
        Row("... mode `RetainFirstAdmission`", f"{_CONCURRENT}test_it_stays_with_retain_first_admission"),
        Row(
            "... `lastAcceptableFlavorName`",
            f"{_CONCURRENT}test_it_moves_to_no_flavor_behind_the_last_acceptable_one",
        ),
        Row("... its conditions for a ClusterQueue", f"{_CONCURRENT}test_faults_are_named"),
        Row("... rules of variants", f"{_CONCURRENT}test_variants_that_are_workloads_yield_to_better_ones"),
        Row(
            "... variants that hold quota of several flavors at once",
            "A workload holds quota in one flavor at a time, and has no further Workload objects",
        ),
        Row(
            "Status: usage and numbers",
            "api/test_api_workloads.py::test_queue_status_shows_workload_counts_and_reserved_quota",
        ),
        Row(
            "Status: `weightedShare`",
            "api/test_api_workloads.py::test_cluster_queues_and_cohorts_show_their_weighted_share",
        ),
        Row(
            "Status: condition Active",
            "api/test_api_queue_objects.py::test_condition_active_shows_whether_a_cluster_queue_can_admit_workloads",
        ),
        Row(
            "Deletion waits for reservations",
            "store/test_store_queues.py::test_a_cluster_queue_in_use_cannot_be_deleted",
        ),
        Row(
            "Lowered quota evicts nothing", f"{_EVENTS}test_quota_lowered_below_usage_evicts_nothing_and_admits_nothing"
        ),
    ),
    "LocalQueues, Cohorts, flavors, workloads": (
        Row("LocalQueue", f"{_EVENTS}test_deletion_of_a_local_queue_removes_its_workloads_from_the_queue"),
        Row(
            "... `stopPolicy`",
            f"{_EVENTS}test_stopped_local_queue_admits_nothing_and_drains_with_hold_and_drain",
        ),
        Row(
            "... `fairSharing.weight`",
            "engine/test_engine_usage.py::test_usage_is_weighted_by_resource_and_local_queue",
        ),
        Row(
            "Default LocalQueue",
            "cli/test_serve_gates.py::test_unlabelled_job_in_a_managed_namespace_is_queued_and_run",
        ),
        Row(
            "kueue-populator",
            "cli/test_serve_namespace_queues.py::test_serve_creates_local_queues_of_namespaces_that_exist_and_that_come",
        ),
        Row("Cohorts in trees, with their own quota", _RECORDED),
        Row("A cycle of Cohorts disables its tree", f"{_EVENTS}test_cycle_of_cohorts_suspends_only_its_own_tree"),
        Row(
            "ResourceFlavor: `nodeLabels`, `tolerations`",
            "kinds/test_kind_job_patches.py::test_start_patch_injects_flavor_constraints_and_unsuspends",
        ),
        Row(
            "ResourceFlavor: `nodeTaints`",
            "engine/test_engine_matching.py::test_a_taint_must_be_tolerated_by_the_pod_or_the_flavor",
        ),
        Row("ResourceFlavor: `topologyName`", f"{_PLACED}test_each_job_runs_within_one_rack"),
        Row(
            "Workload: pod sets, admission, status",
            "api/test_api_workloads.py::test_admitted_workload_shows_its_assigned_flavors_and_conditions",
        ),
        Row("Workload: `active`", f"{_GET}test_release_queues_a_deactivated_workload_again"),
        Row("Two-phase admission", f"{_CHECKS}test_job_holds_quota_but_does_not_start_until_its_check_is_ready"),
        Row("... check state Retry", f"{_CHECKS}test_check_state_retry_releases_quota_until_the_requeue_time"),
        Row(
            "... check state Rejected",
            f"{_CHECKS}test_rejected_check_deactivates_workload_until_activation_by_an_admin",
        ),
        Row(
            "... `podSetUpdates`",
            f"{_CHECKS}test_pod_set_updates_of_check_are_applied_at_start_and_reverted_at_eviction",
        ),
        Row(
            "Conditions",
            "api/test_api_workloads.py::test_workload_being_evicted_has_quota_reserved_and_is_not_admitted",
        ),
        Row(
            "Pending reasons (KEP 10852)",
            "engine/test_engine_listing.py::test_listing_has_positions_in_both_queues_and_reasons",
        ),
        Row(
            "Eviction, preemption and finished reasons",
            "model/test_reasons.py::test_each_reason_in_the_code_is_in_the_reference",
        ),
        Row(
            "WorkloadPriorityClass, PriorityClass of pods",
            "kinds/test_fields_of_declared_kinds.py::test_priority_class_falls_back_to_the_first_pod_set_with_a_priority_class",
        ),
        Row(
            "`priority-boost` (alpha)",
            "Not read from a Job, as any user could set it; `sluice prioritize` needs the right to patch workloads",
        ),
        Row(
            "`admission-gated-by`",
            "controller/test_admission_gates.py::test_job_queues_when_last_controller_removes_its_admission_gate",
        ),
        Row(
            "`cannot-borrow`, `cannot-preempt` (KEP 8729, open)",
            "controller/test_terms.py::test_job_that_cannot_borrow_waits_for_nominal_quota_also_after_a_restart",
        ),
        Row(
            "Dependencies (issue 11024, open)",
            "controller/test_dependencies.py::test_job_starts_after_one_that_has_succeeded_also_after_a_restart",
        ),
        Row(
            "Aging (issues 534 and 754, open)",
            "engine/test_engine_aging.py::test_large_workload_starves_only_without_aging",
        ),
        Row(
            "Queue labels on pods (AssignQueueLabelsForPods)",
            "Pods have the uid of their workload; the ledger and `sluice report usage` have usage by queue",
        ),
        Row(
            "`integrations.labelKeysToCopy`",
            "A workload shows the labels of its object; nothing has to be copied",
        ),
        Row(
            "Partial admission (`job-min-parallelism`)",
            "controller/test_fewer_pods.py::test_job_with_min_parallelism_starts_partially_and_is_restored_at_eviction",
        ),
        Row(
            "... `job-completions-equal-parallelism`",
            "controller/test_fewer_pods.py::test_completions_equal_to_parallelism_are_restored_after_user_edits",
        ),
        Row(
            "Dynamic reclaim (`reclaimablePods`)",
            "controller/test_fewer_pods.py::test_quota_of_succeeded_pods_is_reclaimed_also_across_restart",
        ),
        Row("Elastic Jobs", "A running Job gets no additional pods; other kinds scale"),
        Row("Workload slices", f"{_CYCLE}test_workload_slice_is_replaced_only_within_its_namespace"),
        Row("`max-exec-time-seconds`", f"{_READY}test_job_exceeding_its_maximum_execution_time_is_deactivated"),
        Row("... cumulated", f"{_READY}test_maximum_execution_time_includes_earlier_admissions_and_restarts"),
        Row(
            "Retention: `afterFinished`",
            "cli/test_cli_retention.py::test_retention_defaults_to_90_days_for_finished_and_a_year_for_audit",
        ),
        Row("Retention: `afterDeactivatedByKueue`", "They stay until their object is deleted"),
        Row(
            "FinishOrphanedWorkloads",
            "controller/test_ways_past_the_queue.py::test_deleted_job_kept_by_finalizer_holds_no_quota_without_pods",
        ),
    ),
    "Fairness, all or nothing": (
        Row(
            "Fair sharing",
            "engine/test_engine_fair_victims.py::test_targets_are_taken_from_the_cluster_queue_with_the_highest_share",
        ),
        Row("... `preemptionStrategies`", _CASES),
        Row("... FairSharingPreemptWithinNominal", _RECORDED),
        Row("... FairSharingPrioritizeNonBorrowing", _RECORDED),
        Row(
            "Admission fair sharing: `usageHalfLifeTime`",
            "engine/test_engine_usage.py::test_usage_decays_with_the_half_life",
        ),
        Row(
            "... `usageSamplingInterval`, entry penalty",
            "engine/test_engine_usage.py::test_held_quota_counts_gradually_and_its_penalty_at_once",
        ),
        Row("... `resourceWeights`", "engine/test_engine_usage.py::test_usage_is_weighted_by_resource_and_local_queue"),
        Row(
            "`waitForPodsReady.timeout`",
            f"{_READY}test_job_with_unready_pods_is_evicted_and_admitted_again_after_backoff",
        ),
        Row("... `recoveryTimeout`", f"{_READY}test_job_whose_pods_become_unready_is_evicted_after_recovery_timeout"),
        Row("... `blockAdmission`", f"{_READY}test_block_admission_admits_next_job_only_when_pods_are_ready"),
        Row(
            "... `requeuingStrategy.timestamp`",
            f"{_READY}test_requeued_job_keeps_its_position_unless_counted_from_eviction",
        ),
        Row("... `backoffLimitCount`", f"{_READY}test_unready_job_is_deactivated_when_backoff_limit_is_exceeded"),
        Row("... `backoffBaseSeconds`, `backoffMaxSeconds`", f"{_READY}test_requeue_backoff_doubles_up_to_its_maximum"),
        Row("RecomputeAssignmentUponPreemptionTargetsOverlap", _CASES),
        Row(
            "PrioritizePreemptorWorkloads (alpha)",
            f"{_CYCLE}test_preemptor_stays_at_the_head_until_its_victims_have_stopped",
        ),
        Row(
            "FastQuotaReleaseInPodIntegration (alpha)",
            "Quota is held until the pods have ended, so that nodes are not promised twice",
        ),
        Row(
            "FailureRecoveryPolicy (alpha)",
            "controller/test_failure_recovery.py::test_pods_on_unreachable_nodes_free_their_quota_if_that_is_permitted",
        ),
    ),
    "Nodes, topology, devices, resources": (
        Row("ProvisioningRequest", f"{_NODES}test_job_starts_on_nodes_that_were_added_for_it"),
        Row("... `managedResources`", f"{_NODES}test_nothing_is_requested_for_pods_without_a_managed_resource"),
        Row(
            "... `retryStrategy`",
            f"{_NODES}test_failed_request_is_made_again_after_a_growing_pause_then_the_job_is_deactivated",
        ),
        Row(
            "... `podSetMergePolicy`",
            "kinds/test_provisioning_requests.py::test_pod_sets_are_requested_together_by_the_merge_policy",
        ),
        Row(
            "... booking expiry, capacity revoked",
            f"{_NODES}test_nodes_that_are_taken_away_end_the_job_and_an_expired_booking_does_not",
        ),
        Row("Topology: levels, required", f"{_PLACED}test_each_job_runs_within_one_rack"),
        Row(
            "... annotations of pod sets",
            "kinds/test_topology_requests.py::test_annotations_of_the_template_are_the_request_of_its_pod_set",
        ),
        Row(
            "... preferred, unconstrained, slices, layers",
            "vectors/test_vectors_topology.py::test_single_placement_matches_the_reference",
        ),
        Row(
            "... `podset-group-name`",
            "kinds/test_topology_requests.py::test_a_pod_set_group_is_a_leader_and_its_workers_at_one_level",
        ),
        Row("... ungating", f"{_PLACED}test_pods_of_several_domains_are_ungated_one_by_one_by_their_index"),
        Row("... node replacement", f"{_PLACED}test_pods_of_a_failed_node_get_another_one_within_their_rack"),
        Row("... FailFast", f"{_PLACED}test_without_another_node_the_job_is_evicted_and_waits"),
        Row("... on taints", f"{_PLACED}test_a_taint_is_no_failure_if_pods_tolerate_it_without_limit"),
        Row(
            "... delayed topology request",
            f"{_PLACED}test_pods_are_placed_when_the_nodes_that_a_check_provisions_are_there",
        ),
        Row("DRA: whole devices", f"{_CLAIMS}test_pods_get_devices_by_template_within_quota"),
        Row("... extended resources", f"{_CLAIMS}test_extended_resource_of_a_class_counts_as_its_devices"),
        Row("... partitionable devices", f"{_CLAIMS}test_partitions_count_by_their_memory"),
        Row("... consumable capacity (alpha)", f"{_CLAIMS}test_shared_device_counts_by_the_capacity_that_is_requested"),
        Row("... without a mapping", f"{_CLAIMS}test_class_without_mapping_is_refused_or_does_not_count"),
        Row("Resource transformations", "engine/test_engine_accounting.py::test_outputs_of_transformations_add_up"),
        Row(
            "`excludeResourcePrefixes`",
            "engine/test_engine_accounting.py::test_resources_with_an_excluded_prefix_are_not_counted",
        ),
        Row("`quotaCheckStrategy`", f"{_EVENTS}test_undeclared_resources_are_rejected_or_ignored_as_configured"),
        Row("MultiKueue", _DISPATCH),
        Row(
            "... dispatchers, ordered spillover",
            "controller/test_dispatch.py::test_listed_cluster_comes_first_and_others_after_the_workload_has_waited",
        ),
    ),
    "Kinds": (
        Row("Frameworks", "controller/test_way_of_each_kind.py::test_lifecycle_of_manifest"),
        Row("`externalFrameworks`", "kinds/test_names_of_others.py::test_framework_name_of_kueue_is_known"),
        Row(
            "Jobs are suspended at creation",
            "cli/test_serve_gates.py::test_users_cannot_bypass_the_queue_of_a_managed_namespace",
        ),
        Row(
            "Objects are restored at an eviction",
            "kinds/test_declared_kinds.py::test_gate_start_stop_and_restore_give_the_original_object",
        ),
        Row(
            "Pod groups",
            "controller/test_way_of_a_pod_group.py::test_pod_group_starts_as_a_whole_and_releases_quota_as_its_pods_end",
        ),
        Row(
            "Deployments",
            "webhooks/test_webhook_deployments.py::test_queue_and_priority_labels_are_copied_into_the_pod_template",
        ),
        Row(
            "StatefulSets",
            "controller/test_way_of_a_stateful_set.py::test_stateful_set_starts_as_a_whole_and_quota_follows_replicas",
        ),
        Row(
            "LeaderWorkerSets",
            "controller/test_way_of_a_leader_worker_set.py::test_leader_with_its_workers_is_one_workload_and_quota_follows_replicas",
        ),
        Row("`prebuilt-workload-name`", "Workloads are not objects of the cluster, and cannot be created"),
        Row(
            "`manageJobsWithoutQueueName`",
            "cli/test_serve_gates.py::test_running_job_of_a_newly_managed_namespace_is_logged_and_suspended",
        ),
        Row(
            "`managedJobsNamespaceSelector`",
            "webhooks/test_webhook_managed.py::test_webhook_is_not_called_for_unmanaged_namespaces_or_other_controllers",
        ),
        Row("Import of queue objects", "cli/test_cli_import_kueue.py::test_import_and_export_preserve_the_manifests"),
        Row(
            "Import of what runs",
            "controller/test_kueue_takeover.py::test_import_keeps_running_jobs_admitted_and_pending_jobs_pending",
        ),
    ),
    "Visibility": (
        Row(
            "Visibility API, with `limit` and `offset`",
            "api/test_api_subresources.py::test_pending_workloads_are_listed_in_queue_order_and_paginated",
        ),
        Row(
            "kueuectl `create`",
            "cli/test_cli_create.py::test_flags_of_flavors_cohorts_priority_classes_and_local_queues",
        ),
        Row("kueuectl `list`, `get`", f"{_GET}test_get_prints_the_expected_table"),
        Row("kueuectl `stop`, `resume`", f"{_GET}test_stop_and_resume_say_if_there_is_nothing_to_do"),
        Row("kueuectl `delete`", f"{_GET}test_delete_refuses_objects_in_use_and_deletes_others"),
        Row("kueuectl `--dry-run`", "cli/test_cli_create.py::test_a_server_dry_run_creates_nothing"),
        Row("KueueViz: queues", "browser/test_dashboard.py::test_overview_shows_the_quota_tree_and_the_attention_list"),
        Row("KueueViz: workloads", "browser/test_dashboard.py::test_workload_page_explains_why_a_workload_is_pending"),
        Row(
            "KueueViz: flavors",
            "browser/test_dashboard.py::test_flavors_page_shows_quota_beyond_the_capacity_of_the_nodes",
        ),
        Row(
            "KueueViz: authentication",
            "browser/test_dashboard.py::test_pods_and_logs_are_shown_according_to_kubernetes_rbac",
        ),
        Row(
            "Agent skills: who preempted, lineage",
            "api/test_api_subresources.py::test_workload_history_shows_its_transitions_waiting_times_and_admissions",
        ),
        Row(
            "Events",
            "controller/test_workload_events.py::test_waiting_workload_gets_a_pending_event_and_later_repeated_warnings",
        ),
        Row("Debug: dump of the cache, pprof", "cli/test_cli_debug.py::test_a_bundle_has_the_state_and_no_secret"),
        Row("Metrics, each with its labels ([the list](metrics.md))", _METRICS),
        Row("Metrics endpoint", "api/test_api_metrics.py::test_metrics_are_served_in_the_requested_text_format"),
        Row("`metrics.customLabels` (alpha)", "Metrics have fixed labels; join others in Prometheus"),
    ),
}
"""Heading to rows. Further differences are in docs/comparison.md."""

_HEAD: Final = """# Kueue's features, one by one

What Kueue's main branch of August 2026 has for queues, workloads and their admission, and the test that shows it in
Sluice; where there is none, why. This page is generated by `python -m tests.docs.kueue_parity`. See also
[what Kueue has and Sluice has not](comparison.md#what-kueue-has-and-sluice-has-not).
"""


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    for heading, rows in TABLES.items():
        parts.append(f"## {heading}\n")
        lines = ["| In Kueue | In Sluice |", "| --- | --- |"]
        lines += [f"| {row.feature} | {f'`tests/{row.shown}`' if row.is_shown else row.shown} |" for row in rows]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
