"""Dispatch: the cluster that an admission sends its workload to, and a key by which its copies are recognised there."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


# The version before dispatches nothing: its admissions are in the cluster of the workload's object.
def upgrade() -> None:
    op.add_column(
        "admissions",
        sa.Column(
            "cluster", sa.Text(), comment="Cluster that it is dispatched to; NULL: it runs in that of its object"
        ),
    )
    op.add_column(
        "clusters",
        sa.Column("key", sa.Text(), comment="Secret that signs the copies sent there; NULL: there is none yet"),
    )


def downgrade() -> None:
    op.execute("UPDATE head SET compatible_with = '0016' WHERE compatible_with = '0017'")
    op.drop_column("clusters", "key")
    op.drop_column("admissions", "cluster")
