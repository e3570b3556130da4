"""What the nodes of clusters can allocate, as the leader has seen it last."""

import sqlalchemy as sa
from alembic import op

from admission.store.database.instant import Instant

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "cluster_capacities",
        sa.Column(
            "name", sa.Text(), nullable=False, comment="Name of the cluster; that of the database itself is `local`"
        ),
        sa.Column("seen", Instant(), nullable=True, comment="When its nodes were listed; NULL: never"),
        sa.Column("failure", sa.Text(), nullable=False, comment="Why they were not listed at the last attempt"),
        sa.Column("capacity", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_cluster_capacities")),
        comment="What the nodes of clusters can allocate, as last seen; only if further clusters have joined",
    )


def downgrade() -> None:
    op.drop_table("cluster_capacities")
