"""Domains of the pods of an admission, where a flavor has a Topology."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


# It may be NULL, so that the version before still works on this table, until a Topology is written.
def upgrade() -> None:
    op.add_column(
        "admissions",
        sa.Column(
            "topology",
            sa.JSON(none_as_null=True),
            comment="Domains of the pods, as Kueue's topologyAssignment; in one row of each pod set",
        ),
    )


# Topologies go with the column: the version before stumbles over objects of a kind that it does not know.
def downgrade() -> None:
    op.execute("DELETE FROM queue_objects WHERE kind = 'Topology'")
    op.execute("DELETE FROM queue_object_versions WHERE kind = 'Topology'")
    op.execute("UPDATE head SET compatible_with = '0007' WHERE compatible_with = '0008'")
    op.drop_column("admissions", "topology")
