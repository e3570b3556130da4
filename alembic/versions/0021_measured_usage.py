"""Usage by measurement: what the pods of workloads used of what these held, by hour."""

import sqlalchemy as sa
from alembic import op

from admission.store.database.instant import Instant

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "measured_usage",
        sa.Column("hour", Instant(), nullable=False),
        sa.Column("workload_uid", sa.Text(), nullable=False),
        sa.Column("cluster_queue", sa.Text(), nullable=False),
        sa.Column("local_queue", sa.Text(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column(
            "measured_seconds", sa.Double(), nullable=False,
            comment="What was held while its use was known, times how long",
        ),
        sa.Column("used_seconds", sa.Double(), nullable=False, comment="The part of it that was used"),
        sa.PrimaryKeyConstraint(
            "hour", "workload_uid", "cluster_queue", "local_queue", "flavor", "resource",
            name=op.f("pk_measured_usage"),
        ),
        comment="What workloads used of what they held, by the hour; only if usageMetrics is configured",
    )  # fmt: skip
    op.create_index(op.f("ix_measured_usage_workload_uid"), "measured_usage", ["workload_uid"])


def downgrade() -> None:
    op.drop_table("measured_usage")
