"""Clusters: that of each workload, and what is known of those that have joined."""

import sqlalchemy as sa
from alembic import op

from admission.store.database.instant import Instant

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


# The version before writes no cluster: its workloads are in `local`, the only one that it knows.
def upgrade() -> None:
    op.add_column(
        "workloads",
        sa.Column("cluster", sa.Text(), nullable=False, server_default="local", comment="Cluster of its object"),
    )
    op.create_table(
        "clusters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False, comment="Uid of its kube-system; empty: not known yet"),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("since", Instant(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_clusters")),
        comment="Clusters that have joined, as the leader sees them",
    )


def downgrade() -> None:
    op.execute("DELETE FROM queue_objects WHERE kind = 'Cluster'")
    op.execute("DELETE FROM queue_object_versions WHERE kind = 'Cluster'")
    op.execute("UPDATE head SET compatible_with = '0013' WHERE compatible_with = '0014'")
    op.drop_table("clusters")
    op.drop_column("workloads", "cluster")
