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

TABLES: Final = {
    "ClusterQueues": (
        Row(
            "`resourceGroups`, flavors, `nominalQuota`",
            "model/test_manifests.py::test_cluster_queue_fields_are_parsed_into_exact_amounts",
        ),
        Row("`borrowingLimit`", f"{_CYCLE}test_reserved_quota_does_not_exceed_the_borrowing_limit"),
        Row("`lendingLimit`", f"{_EVENTS}test_cohort_lends_idle_quota_up_to_the_lending_limit"),
        Row("`cohortName`, `cohort` of v1beta1", "model/test_manifests.py::test_v1beta1_fields_are_converted"),
        Row("`queueingStrategy`", f"{_EVENTS}test_strict_fifo_blocks_behind_its_head_and_best_effort_does_not"),
        Row("SchedulingEquivalenceHashing", f"{_EVENTS}test_raised_quota_admits_all_pending_workloads_of_a_shape"),
        Row("`namespaceSelector`", f"{_EVENTS}test_namespace_selector_restricts_admission_to_matching_namespaces"),
        Row(
            "`flavorFungibility`",
            "vectors/test_vectors_recorded.py::test_decisions_of_a_recorded_scenario_match_the_reference",
        ),
        Row(
            "`preemption.withinClusterQueue`, `borrowWithinCohort`",
            "engine/test_engine_preemption.py::test_borrow_within_cohort_decides_between_own_and_borrowing_targets",
        ),
        Row(
            "`preemption.reclaimWithinCohort`",
            "engine/test_engine_preemption.py::test_cohort_within_its_quota_has_no_targets",
        ),
        Row(
            "Preemption protection (KEP 9876, open)",
            "engine/test_engine_protection.py::test_claims_of_other_queues_have_their_own_time",
        ),
        Row("`stopPolicy`", f"{_EVENTS}test_stopped_cluster_queue_admits_nothing_and_drains_with_hold_and_drain"),
        Row(
            "`admissionChecksStrategy`",
            "controller/test_admission_checks.py::test_only_checks_for_the_assigned_flavor_are_requested",
        ),
        Row("`fairSharing.weight`", f"{_CYCLE}test_queues_of_zero_weight_come_last_ordered_by_usage"),
        Row(
            "`admissionScope`",
            "engine/test_engine_usage.py::test_local_queue_with_less_usage_comes_first_despite_lower_priority",
        ),
        Row(
            "`concurrentAdmissionPolicy` (alpha)",
            "controller/test_concurrent_admission.py::test_job_moves_when_the_preferred_flavor_is_free",
        ),
        Row(
            "Lowered quota evicts nothing", f"{_EVENTS}test_quota_lowered_below_usage_evicts_nothing_and_admits_nothing"
        ),
    ),
    "LocalQueues, Cohorts, flavors, workloads": (
        Row(
            "LocalQueue and its `stopPolicy`",
            f"{_EVENTS}test_stopped_local_queue_admits_nothing_and_drains_with_hold_and_drain",
        ),
        Row(
            "Default LocalQueue",
            "cli/test_serve_gates.py::test_unlabelled_job_in_a_managed_namespace_is_queued_and_run",
        ),
        Row(
            "kueue-populator",
            "cli/test_serve_namespace_queues.py::test_serve_creates_local_queues_of_namespaces_that_exist_and_that_come",
        ),
        Row(
            "Cohorts in trees; a cycle disables its tree", f"{_EVENTS}test_cycle_of_cohorts_suspends_only_its_own_tree"
        ),
        Row(
            "ResourceFlavor: labels, taints, tolerations",
            "engine/test_engine_matching.py::test_a_taint_must_be_tolerated_by_the_pod_or_the_flavor",
        ),
        Row(
            "Two-phase admission",
            "controller/test_admission_checks.py::test_job_holds_quota_but_does_not_start_until_its_check_is_ready",
        ),
        Row(
            "Check states Retry and Rejected, `podSetUpdates`",
            "controller/test_admission_checks.py::test_pod_set_updates_of_check_are_applied_at_start_and_reverted_at_eviction",
        ),
        Row(
            "Conditions", "api/test_api_workloads.py::test_admitted_workload_shows_its_assigned_flavors_and_conditions"
        ),
        Row(
            "Pending reasons (KEP 10852)",
            "engine/test_engine_listing.py::test_listing_has_positions_in_both_queues_and_reasons",
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
            "Partial admission",
            "controller/test_fewer_pods.py::test_job_with_min_parallelism_starts_partially_and_is_restored_at_eviction",
        ),
        Row("Elastic Jobs", "A running Job gets no additional pods; other kinds scale"),
        Row(
            "`max-exec-time-seconds`",
            "controller/test_time_limits.py::test_queue_stops_what_has_no_limit_and_admits_nothing_with_a_longer_one",
        ),
        Row(
            "Retention of finished workloads",
            "cli/test_cli_retention.py::test_retention_defaults_to_90_days_for_finished_and_a_year_for_audit",
        ),
        Row("Retention of deactivated workloads", "They stay until their object is deleted"),
    ),
    "Fairness, all or nothing": (
        Row(
            "Fair sharing",
            "engine/test_engine_fair_victims.py::test_targets_are_taken_from_the_cluster_queue_with_the_highest_share",
        ),
        Row("Admission fair sharing", "engine/test_engine_usage.py::test_usage_decays_with_the_half_life"),
        Row(
            "`waitForPodsReady`",
            "controller/test_pods_ready.py::test_job_with_unready_pods_is_evicted_and_admitted_again_after_backoff",
        ),
        Row(
            "PrioritizePreemptorWorkloads (alpha)",
            f"{_CYCLE}test_preemptor_stays_at_the_head_until_its_victims_have_stopped",
        ),
        Row(
            "FailureRecoveryPolicy (alpha)",
            "controller/test_failure_recovery.py::test_pods_on_unreachable_nodes_free_their_quota_if_that_is_permitted",
        ),
    ),
    "Topology, devices, resources": (
        Row(
            "Topology-aware scheduling",
            "engine/test_engine_placing.py::test_workload_waits_for_room_in_one_rack_and_starts_when_a_node_comes",
        ),
        Row("DRA", "controller/test_devices.py::test_pods_get_devices_by_template_within_quota"),
        Row("ProvisioningRequest", "controller/test_provisioning.py::test_job_starts_on_nodes_that_were_added_for_it"),
        Row("Resource transformations", "engine/test_engine_accounting.py::test_outputs_of_transformations_add_up"),
        Row(
            "`excludeResourcePrefixes`",
            "engine/test_engine_accounting.py::test_resources_with_an_excluded_prefix_are_not_counted",
        ),
        Row("`quotaCheckStrategy`", f"{_EVENTS}test_undeclared_resources_are_rejected_or_ignored_as_configured"),
    ),
    "Kinds": (
        Row("Frameworks", "controller/test_way_of_each_kind.py::test_lifecycle_of_manifest"),
        Row(
            "Objects are restored at an eviction",
            "kinds/test_declared_kinds.py::test_gate_start_stop_and_restore_give_the_original_object",
        ),
        Row(
            "Pod groups",
            "controller/test_way_of_a_pod_group.py::test_pod_group_starts_as_a_whole_and_releases_quota_as_its_pods_end",
        ),
        Row(
            "`manageJobsWithoutQueueName`",
            "cli/test_serve_gates.py::test_users_cannot_bypass_the_queue_of_a_managed_namespace",
        ),
        Row("`prebuilt-workload-name`", "Workloads are not objects of the cluster, and cannot be created"),
        Row("Import", "cli/test_cli_import_kueue.py::test_import_and_export_preserve_the_manifests"),
    ),
    "Visibility": (
        Row(
            "Pending workloads with positions",
            "api/test_api_subresources.py::test_pending_workloads_are_listed_in_queue_order_and_paginated",
        ),
        Row(
            "Events",
            "controller/test_workload_events.py::test_waiting_workload_gets_a_pending_event_and_later_repeated_warnings",
        ),
        Row("Metrics", "api/test_api_metrics.py::test_metrics_are_served_in_the_requested_text_format"),
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
