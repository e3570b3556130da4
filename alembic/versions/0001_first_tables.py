"""Initial tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "admissions",
        sa.Column("id", ID, nullable=False),
        sa.Column("workload_uid", sa.Text(), nullable=False),
        sa.Column("pod_set", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False, comment="Empty for a pod set that asks for nothing"),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column(
            "amount", sa.BigInteger(), nullable=False, comment="Of all pods together; milli for cpu, else base units"
        ),
        sa.Column("count", sa.Integer(), nullable=False, comment="Pods"),
        sa.Column("cluster_queue", sa.Text(), nullable=False),
        sa.Column("local_queue", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("submitted_by", sa.Text(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("from_at", INSTANT, nullable=False),
        sa.Column("to_at", INSTANT, comment="NULL while the quota is held"),
        sa.Column("end_reason", sa.Text()),
        sa.CheckConstraint("(to_at IS NULL) = (end_reason IS NULL)", name=op.f("ck_admissions_ended_with_reason")),
        sa.CheckConstraint("to_at >= from_at", name=op.f("ck_admissions_no_negative_time")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_admissions")),
        comment="The ledger. Rows are added and closed once; nothing else ever happens to them",
    )
    op.create_index(op.f("ix_admissions_to_at"), "admissions", ["to_at"])
    op.create_index(op.f("ix_admissions_workload_uid_id"), "admissions", ["workload_uid", "id"])
    op.create_index(
        "uq_admissions_open",
        "admissions",
        ["workload_uid", "pod_set", "resource"],
        unique=True,
        sqlite_where=sa.text("to_at IS NULL"),
        postgresql_where=sa.text("to_at IS NULL"),
    )
    op.create_table(
        "head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("held_since", INSTANT),
        sa.Column("rolled_up_to", INSTANT, comment="The ledger is summed up in usage_rollups until then"),
        sa.CheckConstraint("id = 1", name=op.f("ck_head_single_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_head")),
        comment="One row, updated first by every write: it orders them (revision) and fences deposed leaders (epoch)",
    )
    op.create_table(
        "pod_sets",
        sa.Column("shape", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("min_count", sa.Integer()),
        sa.Column("spec", sa.JSON(), nullable=False, comment="Requests of one pod and all that bears on its flavors"),
        sa.PrimaryKeyConstraint("shape", "position", name=op.f("pk_pod_sets")),
        comment="Kept once for all workloads of the same shape",
    )
    op.create_table(
        "queue_object_versions",
        sa.Column("id", ID, nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("annotations", sa.JSON(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.CheckConstraint(
            "operation IN ('create', 'replace', 'delete')", name=op.f("ck_queue_object_versions_operation")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_queue_object_versions")),
        comment="Every version that ever was, the last one of a deleted object included",
    )
    op.create_index(
        op.f("ix_queue_object_versions_kind_namespace_name_revision"),
        "queue_object_versions",
        ["kind", "namespace", "name", "revision"],
    )
    op.create_index(op.f("ix_queue_object_versions_revision"), "queue_object_versions", ["revision"])
    op.create_table(
        "queue_objects",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column(
            "parent", sa.Text(), nullable=False, comment="Cohort that a ClusterQueue or Cohort belongs to, or empty"
        ),
        sa.Column(
            "cluster_queue", sa.Text(), nullable=False, comment="ClusterQueue that a LocalQueue leads to, or empty"
        ),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("annotations", sa.JSON(), nullable=False),
        sa.Column(
            "content", sa.JSON(), nullable=False, comment="The manifest without apiVersion, kind, metadata and status"
        ),
        sa.PrimaryKeyConstraint("kind", "namespace", "name", name=op.f("pk_queue_objects")),
        sa.UniqueConstraint("uid", name=op.f("uq_queue_objects_uid")),
    )
    op.create_table(
        "usage_rollups",
        sa.Column("hour", INSTANT, nullable=False),
        sa.Column("cluster_queue", sa.Text(), nullable=False),
        sa.Column("local_queue", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("submitted_by", sa.Text(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column(
            "amount_seconds", sa.Double(), nullable=False, comment="What was held times how long, within the hour"
        ),
        sa.PrimaryKeyConstraint(
            "hour",
            "cluster_queue",
            "local_queue",
            "namespace",
            "submitted_by",
            "priority",
            "flavor",
            "resource",
            name=op.f("pk_usage_rollups"),
        ),
        comment="Sums of the ledger by the hour",
    )
    op.create_table(
        "workloads",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("local_queue", sa.Text(), nullable=False),
        sa.Column(
            "cluster_queue",
            sa.Text(),
            nullable=False,
            comment="Where it holds quota, or last held it; empty: never did",
        ),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("priority_class", sa.Text(), nullable=False),
        sa.Column("submitted_by", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("evict_reason", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column(
            "queued_at", INSTANT, nullable=False, comment="Since when it waits, or waited before it was admitted"
        ),
        sa.Column("counts_from", INSTANT, comment="Its age in the order of its queue, if not by created_at"),
        sa.Column("admitted_at", INSTANT),
        sa.Column("finished_at", INSTANT),
        sa.Column(
            "original",
            sa.JSON(none_as_null=True),
            comment="What was replaced in the object, so that it can be put back",
        ),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("state IN ('pending', 'admitted', 'evicting', 'finished')", name=op.f("ck_workloads_state")),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_workloads")),
    )
    op.create_index(op.f("ix_workloads_namespace_name_uid"), "workloads", ["namespace", "name", "uid"])
    op.create_index(
        "ix_workloads_unfinished",
        "workloads",
        ["namespace", "local_queue", "state", "cluster_queue"],
        sqlite_where=sa.text("state <> 'finished'"),
        postgresql_where=sa.text("state <> 'finished'"),
    )
    op.create_table(
        "transitions",
        sa.Column("id", ID, nullable=False),
        sa.Column("workload_uid", sa.Text(), nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workload_uid"], ["workloads.uid"], name=op.f("fk_transitions_workload_uid_workloads"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transitions")),
        comment="The story of each workload",
    )
    op.create_index(op.f("ix_transitions_workload_uid"), "transitions", ["workload_uid"])
    op.execute("INSERT INTO head (id, revision, epoch, holder) VALUES (1, 0, 0, '')")


def downgrade() -> None:
    op.drop_table("transitions")
    op.drop_table("workloads")
    op.drop_table("usage_rollups")
    op.drop_table("queue_objects")
    op.drop_table("queue_object_versions")
    op.drop_table("pod_sets")
    op.drop_table("head")
    op.drop_table("admissions")
