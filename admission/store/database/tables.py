"""Table definitions: columns, constraints and indexes.

Values that are filtered, summed or joined are columns; those that are only read back as a whole are JSON documents.
Times are seconds since the epoch in Python and UTC in the database. Ids grow with time. The migrations in
`alembic/versions` must result in exactly these tables; a test compares the two.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
    true,
)

from admission.store.database.instant import Instant

SCHEMA_VERSION = "0022"
"""Revision of the newest migration. Revisions are numbered, so that older and newer schemas can be compared."""

# SQLite generates ids only for a primary key of type INTEGER.
_Id = BigInteger().with_variant(Integer, "sqlite")

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

head = Table(
    "head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("revision", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("held_since", Instant),
    Column("rolled_up_to", Instant, comment="The ledger is summed up in usage_rollups until then"),
    Column("pruned_to", Instant, comment="Rows that ended before then may have left the ledger"),
    Column("compatible_with", Text, nullable=False, server_default="0001", comment="Oldest schema of which code works"),
    Column("decided_at", Instant, comment="When a leader last wrote, by its clock"),
    Column(
        "identity",
        Text,
        comment="A UUID that every copy of this database shares; NULL until a Sluice has used it",
    ),
    Column(
        "cluster",
        Text,
        comment="Identity of the cluster that the workloads are in; NULL until a Sluice has used it",
    ),
    CheckConstraint("id = 1", name="single_row"),
    comment="One row, updated first by every write: it orders them (revision) and fences deposed leaders (epoch)",
)

queue_objects = Table(
    "queue_objects",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("namespace", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("uid", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("parent", Text, nullable=False, comment="Cohort that a ClusterQueue or Cohort belongs to, or empty"),
    Column("cluster_queue", Text, nullable=False, comment="ClusterQueue that a LocalQueue leads to, or empty"),
    Column("labels", JSON, nullable=False),
    Column("annotations", JSON, nullable=False),
    Column("content", JSON, nullable=False, comment="The manifest without apiVersion, kind, metadata and status"),
    Column("managed_fields", JSON(none_as_null=True), comment="Which field was set by whom"),
    UniqueConstraint("uid"),
)

queue_object_versions = Table(
    "queue_object_versions",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("revision", BigInteger, nullable=False, index=True),
    Column("operation", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", Instant, nullable=False),
    Column("kind", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("uid", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("labels", JSON, nullable=False),
    Column("annotations", JSON, nullable=False),
    Column("content", JSON, nullable=False),
    CheckConstraint("operation IN ('create', 'replace', 'delete')", name="operation"),
    Index(None, "kind", "namespace", "name", "revision"),
    comment="Every version that ever was, the last one of a deleted object included",
)

pod_sets = Table(
    "pod_sets",
    metadata,
    Column("shape", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("count", Integer, nullable=False),
    Column("min_count", Integer),
    Column("spec", JSON, nullable=False, comment="Requests of one pod and all that bears on its flavors"),
    comment="Kept once for all workloads of the same shape",
)

workloads = Table(
    "workloads",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("local_queue", Text, nullable=False),
    Column("cluster_queue", Text, nullable=False, comment="Where it holds quota, or last held it; empty: never did"),
    Column("priority", BigInteger, nullable=False),
    Column("priority_class", Text, nullable=False),
    Column("submitted_by", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("shape", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("evict_reason", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("queued_at", Instant, nullable=False, comment="Since when it waits, or waited before it was admitted"),
    Column("counts_from", Instant, comment="Its age in the order of its queue, if not by created_at"),
    Column("admitted_at", Instant),
    Column("finished_at", Instant),
    Column("original", JSON(none_as_null=True), comment="What was replaced in the object, so that it can be put back"),
    Column("revision", BigInteger, nullable=False, index=True),
    Column("active", Boolean, nullable=False, server_default=true(), comment="Not active: out of the queue for good"),
    Column("checks_pending", Boolean, nullable=False, server_default=false(), comment="Quota held, start not allowed"),
    Column("cleared_at", Instant, comment="Since when it may run: it holds quota, and its admission checks are ready"),
    Column("ready_at", Instant, comment="Since when all pods of this admission are ready, or first were"),
    Column("unready_at", Instant, comment="Since when they are not all ready any more"),
    Column("requeues", Integer, nullable=False, server_default="0", comment="Evictions that count for the backoff"),
    Column("not_before", Instant, comment="Takes no part in cycles until then"),
    Column("past_seconds", Double, nullable=False, server_default="0", comment="It ran so long in former admissions"),
    CheckConstraint("state IN ('pending', 'admitted', 'evicting', 'finished')", name="state"),
    Column("first_revision", BigInteger, nullable=False, server_default="0", comment="That which wrote it first"),
    Column("api_version", Text, nullable=False, server_default="batch/v1", comment="GROUP/VERSION of its object"),
    Column("eviction", JSON(none_as_null=True), comment="Reason, message and time of its last eviction"),
    Column("max_seconds", Integer, comment="Its time limit; NULL: none, or it is not known"),
    Column("terms", JSON(none_as_null=True), comment="What its user permits or waits for; NULL: nothing special"),
    Column("cluster", Text, nullable=False, server_default="local", comment="Cluster of its object"),
    Column("submitter_groups", JSON(none_as_null=True),
           comment="Groups of the user who submitted it; NULL: none are recorded"),
    # Covers the order of lists and all columns that they can be filtered by: no other rows are read for a page.
    Index("ix_workloads_listed", "namespace", "name", "uid", "state", "local_queue", "cluster_queue", "priority",
          "submitted_by"),
    Index("ix_workloads_finished", "finished_at",
          sqlite_where=text("state = 'finished'"), postgresql_where=text("state = 'finished'")),
    Index("ix_workloads_unfinished", "namespace", "local_queue", "state", "cluster_queue",
          sqlite_where=text("state <> 'finished'"), postgresql_where=text("state <> 'finished'")),
)  # fmt: skip

clusters = Table(
    "clusters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("identity", Text, nullable=False, comment="Uid of its kube-system; empty: not known yet"),
    Column("state", Text, nullable=False),
    Column("since", Instant, nullable=False),
    Column("message", Text, nullable=False),
    Column("key", Text, comment="Secret that signs the copies sent there; NULL: there is none yet"),
    comment="Clusters that have joined, as the leader sees them",
)

cluster_capacities = Table(
    "cluster_capacities",
    metadata,
    Column("name", Text, primary_key=True, comment="Name of the cluster; that of the database itself is `local`"),
    Column("seen", Instant, comment="When its nodes were listed; NULL: never"),
    Column("failure", Text, nullable=False, comment="Why they were not listed at the last attempt"),
    Column("capacity", JSON, nullable=False),
    comment="What the nodes of clusters can allocate, as last seen; only if further clusters have joined",
)

admissions = Table(
    "admissions",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("workload_uid", Text, nullable=False),
    Column("pod_set", Text, nullable=False),
    Column("resource", Text, nullable=False, comment="Empty for a pod set that asks for nothing"),
    Column("flavor", Text, nullable=False),
    Column("amount", BigInteger, nullable=False, comment="Of all pods together; milli for cpu, else base units"),
    Column("count", Integer, nullable=False, comment="Pods"),
    Column("cluster_queue", Text, nullable=False),
    Column("local_queue", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("submitted_by", Text, nullable=False),
    Column("priority", BigInteger, nullable=False),
    Column("from_at", Instant, nullable=False),
    Column("to_at", Instant, comment="NULL while the quota is held"),
    Column("end_reason", Text),
    Column("began_at", Instant, comment="Of the admission, if it was resized since: this row is a part of it"),
    Column("from_revision", BigInteger, comment="The commit by which the row was added ..."),
    Column("to_revision", BigInteger, comment="... and the one by which it was closed; no clock moves these"),
    Column("known_revision", BigInteger, comment="Up to which its leader knew the queue objects when it was decided"),
    Column(
        "topology",
        JSON(none_as_null=True),
        comment="Domains of the pods, as Kueue's topologyAssignment; in one row of each pod set",
    ),
    Column("cluster", Text, comment="Cluster that it is dispatched to; NULL: it runs in that of its object"),
    CheckConstraint("to_at >= from_at", name="no_negative_time"),
    CheckConstraint("(to_at IS NULL) = (end_reason IS NULL)", name="ended_with_reason"),
    Index("uq_admissions_open", "workload_uid", "pod_set", "resource", unique=True,
          sqlite_where=text("to_at IS NULL"), postgresql_where=text("to_at IS NULL")),
    Index(None, "workload_uid", "id"),
    Index(None, "to_at", "from_at"),
    comment="The ledger. Rows are added and closed once; nothing else ever happens to them",
)  # fmt: skip

transitions = Table(
    "transitions",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("workload_uid", Text, ForeignKey("workloads.uid", ondelete="CASCADE"), nullable=False, index=True),
    Column("at", Instant, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("message", Text, nullable=False),
    comment="The story of each workload",
)


def _sums(name: str, period: str, comment: str) -> Table:
    return Table(
        name,
        metadata,
        Column(period, Instant, primary_key=True),
        Column("cluster_queue", Text, primary_key=True),
        Column("local_queue", Text, primary_key=True),
        Column("namespace", Text, primary_key=True),
        Column("submitted_by", Text, primary_key=True),
        Column("priority", BigInteger, primary_key=True),
        Column("flavor", Text, primary_key=True),
        Column("resource", Text, primary_key=True),
        Column("amount_seconds", Double, nullable=False, comment=f"What was held times how long, within the {period}"),
        Column(
            "borrowed_seconds",
            Double,
            nullable=False,
            server_default="0",
            comment="The part of it beyond nominal quota",
        ),
        comment=comment,
    )


usage_rollups = _sums("usage_rollups", "hour", "Sums of the ledger by the hour")
usage_days = _sums("usage_days", "day", "Sums of usage_rollups by the day (UTC), once all hours of the day are there")

measured_usage = Table(
    "measured_usage",
    metadata,
    Column("hour", Instant, primary_key=True),
    Column("workload_uid", Text, primary_key=True, index=True),
    Column("cluster_queue", Text, primary_key=True),
    Column("local_queue", Text, primary_key=True),
    Column("flavor", Text, primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("measured_seconds", Double, nullable=False,
           comment="What was held while its use was known, times how long"),
    Column("used_seconds", Double, nullable=False, comment="The part of it that was used"),
    comment="What workloads used of what they held, by the hour; only if usageMetrics is configured",
)  # fmt: skip

workload_orders = Table(
    "workload_orders",
    metadata,
    Column("workload_uid", Text, ForeignKey("workloads.uid", ondelete="CASCADE"), primary_key=True),
    Column("revision", BigInteger, nullable=False, index=True),
    Column("local_queue", Text, comment="Moved to this LocalQueue"),
    Column("priority", BigInteger, comment="Instead of that of its priority class"),
    Column("held", Boolean, nullable=False, server_default=false()),
    Column("rank_priority", BigInteger, comment="Its place in the order of its queue: as if it had this priority"),
    Column("rank_at", Instant, comment="... and had waited since then"),
    Column("active", Boolean, comment="Taken out of the queue for good, or back in; NULL: not since Sluice did it"),
    Column("author", Text, nullable=False, comment="Who ordered last"),
    Column("reason", Text, nullable=False, comment="... and why"),
    comment="What an admin has ordered about one workload; it outweighs what its object asks for",
)

workload_checks = Table(
    "workload_checks",
    metadata,
    Column("workload_uid", Text, ForeignKey("workloads.uid", ondelete="CASCADE"), primary_key=True),
    Column("name", Text, primary_key=True, comment="Of the AdmissionCheck"),
    Column("revision", BigInteger, nullable=False, index=True),
    Column("state", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("at", Instant, nullable=False, comment="Since when it is in this state"),
    Column("requeue_after_seconds", Integer),
    Column("retries", Integer, nullable=False, server_default="0"),
    Column("pod_set_updates", JSON, nullable=False, comment="What the check adds to the pods: labels, selectors ..."),
    CheckConstraint("state IN ('Pending', 'Ready', 'Retry', 'Rejected')", name="state"),
    comment="What admission checks say of the workloads that hold quota",
)

audit_records = Table(
    "audit_records",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("revision", BigInteger, nullable=False, index=True),
    Column("at", Instant, nullable=False, index=True),
    Column("user", Text, nullable=False),
    Column("groups", JSON, nullable=False),
    Column("source", Text, nullable=False, comment="The address that the request came from"),
    Column("verb", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("before", JSON(none_as_null=True)),
    Column("after", JSON(none_as_null=True)),
    Index(None, "kind", "namespace", "name", "id"),
    Index(None, "user", "id"),
    comment="Every write through the API: who, from where, why, what was there before and after",
)

browser_sessions = Table(
    "browser_sessions",
    metadata,
    Column("digest", Text, primary_key=True, comment="SHA-256 of the secret that the browser has"),
    Column("sealed_token", LargeBinary, nullable=False, comment="Encrypted by a key made from that secret"),
    Column("began_at", Instant, nullable=False),
    Column("ends_at", Instant, nullable=False),
    comment="Who is signed in to the dashboard; not part of an export",
    info={"exported": False},
)

budget_sums = Table(
    "budget_sums",
    metadata,
    Column("budget", Text, primary_key=True),
    Column("at", Instant, nullable=False, comment="When it was written, by the leader"),
    Column("sums", JSON, nullable=False, comment="The period; by resource what is given, spent, reserved; alerts"),
    comment="What Budgets had left a short time ago, for their status; the accounts are computed from the ledger",
    info={"exported": False},
)

notification_progress = Table(
    "notification_progress",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("transition_id", BigInteger, nullable=False, comment="Of the last transition that was looked at"),
    Column("version_id", BigInteger, nullable=False, comment="Of the last version of a queue object"),
    CheckConstraint("id = 1", name="single_row"),
    comment="Up to where Subscriptions have been told; no row: there are none",
    info={"exported": False},
)

notification_outbox = Table(
    "notification_outbox",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("subscription", Text, nullable=False, comment="uid of the Subscription"),
    Column("event_id", Text, nullable=False, comment="The same for every attempt to send it"),
    Column("at", Instant, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0", comment="That have failed"),
    Column("event", JSON, nullable=False, comment="The CloudEvent"),
    UniqueConstraint("subscription", "event_id"),
    comment="Notifications that are not delivered yet",
    info={"exported": False},
)

subscription_states = Table(
    "subscription_states",
    metadata,
    Column("subscription", Text, primary_key=True, comment="uid of the Subscription"),
    Column("waits_told_to", Instant, comment="Workloads that were queued by then are told if they wait too long"),
    Column("hour", Instant, comment="The hour that these are of:"),
    Column("in_hour", Integer, nullable=False, server_default="0", comment="Notifications made in it"),
    Column("left_out", JSON, nullable=False, comment="Number by type of event of those beyond the limit"),
    Column("delivered", BigInteger, nullable=False, server_default="0"),
    Column("delivered_at", Instant, comment="The last one"),
    Column("dropped", BigInteger, nullable=False, server_default="0", comment="Not delivered within days"),
    Column("failures", Integer, nullable=False, server_default="0", comment="Attempts since the last success"),
    Column("failed_at", Instant, comment="The first failure since the last success"),
    Column("error", Text, nullable=False, comment="Of the last failure; empty: there was none since the last success"),
    Column("alerts_told_to", Instant, comment="Alerts of Budgets that were reached by then were told"),
    comment="What became of the notifications of each Subscription",
    info={"exported": False},
)

start_estimates = Table(
    "start_estimates",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("at", Instant, nullable=False),
    Column("shown", JSON, nullable=False, comment="The estimates of pending workloads"),
    Column("learned", JSON, nullable=False, comment="Errors of past estimates, and those still open"),
    CheckConstraint("id = 1", name="single_row"),
    comment="The latest estimated starts, as their process wrote them; no row: there were none",
    info={"exported": False},
)
