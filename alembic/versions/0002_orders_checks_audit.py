"""Admins' orders, admission checks, the audit log, and columns for waitForPodsReady and borrowed usage."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


# All new columns have defaults in the database, so that the version before still works on these tables.
def workload_columns() -> tuple[sa.Column, ...]:
    return (
        sa.Column(
            "active",
            sa.Boolean(),
            nullable=False,
            server_default=sa.true(),
            comment="Not active: out of the queue for good",
        ),
        sa.Column(
            "checks_pending",
            sa.Boolean(),
            nullable=False,
            server_default=sa.false(),
            comment="Quota held, start not allowed",
        ),
        sa.Column(
            "cleared_at", INSTANT, comment="Since when it may run: it holds quota, and its admission checks are ready"
        ),
        sa.Column("ready_at", INSTANT, comment="Since when all pods of this admission are ready, or first were"),
        sa.Column("unready_at", INSTANT, comment="Since when they are not all ready any more"),
        sa.Column(
            "requeues", sa.Integer(), nullable=False, server_default="0", comment="Evictions that count for the backoff"
        ),
        sa.Column("not_before", INSTANT, comment="Takes no part in cycles until then"),
        sa.Column(
            "past_seconds",
            sa.Double(),
            nullable=False,
            server_default="0",
            comment="It ran so long in former admissions",
        ),
    )


def ledger_columns() -> tuple[sa.Column, ...]:
    return (
        sa.Column("began_at", INSTANT, comment="Of the admission, if it was resized since: this row is a part of it"),
        sa.Column("from_revision", sa.BigInteger(), comment="The commit by which the row was added ..."),
        sa.Column(
            "to_revision", sa.BigInteger(), comment="... and the one by which it was closed; no clock moves these"
        ),
        sa.Column(
            "known_revision",
            sa.BigInteger(),
            comment="Up to which its leader knew the queue objects when it was decided",
        ),
    )


LISTED = ["namespace", "name", "uid", "state", "local_queue", "cluster_queue", "priority", "submitted_by"]


def upgrade() -> None:
    # Which versions of Sluice can work on these tables, so that the one before may run on during an upgrade.
    op.add_column(
        "head",
        sa.Column(
            "compatible_with",
            sa.Text(),
            nullable=False,
            server_default="0001",
            comment="Oldest schema of which code works",
        ),
    )
    op.add_column(
        "head", sa.Column("pruned_to", INSTANT, comment="Rows that ended before then may have left the ledger")
    )
    op.add_column("head", sa.Column("decided_at", INSTANT, comment="When a leader last wrote, by its clock"))
    for column in ledger_columns():
        op.add_column("admissions", column)
    op.drop_index(op.f("ix_admissions_to_at"), "admissions")
    op.create_index(op.f("ix_admissions_to_at_from_at"), "admissions", ["to_at", "from_at"])
    for column in workload_columns():
        op.add_column("workloads", column)
    op.add_column(
        "workloads",
        sa.Column(
            "first_revision",
            sa.BigInteger(),
            nullable=False,
            server_default="0",
            comment="That which wrote it first",
        ),
    )
    op.add_column("queue_objects", sa.Column("managed_fields", sa.JSON(), comment="Which field was set by whom"))
    op.create_index(op.f("ix_workloads_revision"), "workloads", ["revision"])
    op.drop_index(op.f("ix_workloads_namespace_name_uid"), "workloads")
    op.create_index("ix_workloads_listed", "workloads", LISTED)
    finished = sa.text("state = 'finished'")
    op.create_index(
        "ix_workloads_finished", "workloads", ["finished_at"], sqlite_where=finished, postgresql_where=finished
    )
    op.add_column(
        "usage_rollups",
        sa.Column(
            "borrowed_seconds",
            sa.Double(),
            nullable=False,
            server_default="0",
            comment="The part of it beyond nominal quota",
        ),
    )
    # Sums without what was borrowed, and without days: they are made again from the ledger, which is all there.
    op.execute("UPDATE head SET rolled_up_to = NULL")
    op.execute("DELETE FROM usage_rollups")
    op.create_table(
        "usage_days",
        sa.Column("day", INSTANT, nullable=False),
        sa.Column("cluster_queue", sa.Text(), nullable=False),
        sa.Column("local_queue", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("submitted_by", sa.Text(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column(
            "amount_seconds", sa.Double(), nullable=False, comment="What was held times how long, within the day"
        ),
        sa.Column(
            "borrowed_seconds",
            sa.Double(),
            nullable=False,
            server_default="0",
            comment="The part of it beyond nominal quota",
        ),
        sa.PrimaryKeyConstraint(
            "day",
            "cluster_queue",
            "local_queue",
            "namespace",
            "submitted_by",
            "priority",
            "flavor",
            "resource",
            name=op.f("pk_usage_days"),
        ),
        comment="Sums of usage_rollups by the day (UTC), once all hours of the day are there",
    )
    op.create_table(
        "workload_orders",
        sa.Column("workload_uid", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("local_queue", sa.Text(), comment="Moved to this LocalQueue"),
        sa.Column("priority", sa.BigInteger(), comment="Instead of that of its priority class"),
        sa.Column("held", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column(
            "rank_priority",
            sa.BigInteger(),
            comment="Its place in the order of its queue: as if it had this priority",
        ),
        sa.Column("rank_at", INSTANT, comment="... and had waited since then"),
        sa.Column(
            "active", sa.Boolean(), comment="Taken out of the queue for good, or back in; NULL: not since Sluice did it"
        ),
        sa.Column("author", sa.Text(), nullable=False, comment="Who ordered last"),
        sa.Column("reason", sa.Text(), nullable=False, comment="... and why"),
        sa.ForeignKeyConstraint(
            ["workload_uid"],
            ["workloads.uid"],
            name=op.f("fk_workload_orders_workload_uid_workloads"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("workload_uid", name=op.f("pk_workload_orders")),
        comment="What an admin has ordered about one workload; it outweighs what its object asks for",
    )
    op.create_index(op.f("ix_workload_orders_revision"), "workload_orders", ["revision"])
    op.create_table(
        "workload_checks",
        sa.Column("workload_uid", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False, comment="Of the AdmissionCheck"),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("at", INSTANT, nullable=False, comment="Since when it is in this state"),
        sa.Column("requeue_after_seconds", sa.Integer()),
        sa.Column("retries", sa.Integer(), nullable=False, server_default="0"),
        sa.Column(
            "pod_set_updates",
            sa.JSON(),
            nullable=False,
            comment="What the check adds to the pods: labels, selectors ...",
        ),
        sa.CheckConstraint("state IN ('Pending', 'Ready', 'Retry', 'Rejected')", name=op.f("ck_workload_checks_state")),
        sa.ForeignKeyConstraint(
            ["workload_uid"],
            ["workloads.uid"],
            name=op.f("fk_workload_checks_workload_uid_workloads"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("workload_uid", "name", name=op.f("pk_workload_checks")),
        comment="What admission checks say of the workloads that hold quota",
    )
    op.create_index(op.f("ix_workload_checks_revision"), "workload_checks", ["revision"])
    op.create_table(
        "audit_records",
        sa.Column("id", ID, nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("groups", sa.JSON(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False, comment="The address that the request came from"),
        sa.Column("verb", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("before", sa.JSON(none_as_null=True)),
        sa.Column("after", sa.JSON(none_as_null=True)),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_records")),
        comment="Every write through the API: who, from where, why, what was there before and after",
    )
    op.create_index(op.f("ix_audit_records_revision"), "audit_records", ["revision"])
    op.create_index(op.f("ix_audit_records_at"), "audit_records", ["at"])
    op.create_index(
        op.f("ix_audit_records_kind_namespace_name_id"), "audit_records", ["kind", "namespace", "name", "id"]
    )
    op.create_index(op.f("ix_audit_records_user_id"), "audit_records", ["user", "id"])


def downgrade() -> None:
    op.drop_table("audit_records")
    op.drop_table("workload_checks")
    op.drop_table("workload_orders")
    op.drop_table("usage_days")
    op.drop_column("usage_rollups", "borrowed_seconds")
    op.drop_index("ix_workloads_listed", "workloads")
    op.drop_index("ix_workloads_finished", "workloads")
    op.create_index(op.f("ix_workloads_namespace_name_uid"), "workloads", ["namespace", "name", "uid"])
    op.drop_index(op.f("ix_workloads_revision"), "workloads")
    op.drop_column("queue_objects", "managed_fields")
    op.drop_column("workloads", "first_revision")
    for column in workload_columns():
        op.drop_column("workloads", column.name)
    op.drop_index(op.f("ix_admissions_to_at_from_at"), "admissions")
    op.create_index(op.f("ix_admissions_to_at"), "admissions", ["to_at"])
    for column in ledger_columns():
        op.drop_column("admissions", column.name)
    op.drop_column("head", "decided_at")
    op.drop_column("head", "pruned_to")
    op.drop_column("head", "compatible_with")
