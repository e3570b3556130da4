"""UserLimits, and the groups of the user who submitted a workload."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "Groups of the user who submitted it; NULL: none are recorded"
    op.add_column("workloads", sa.Column("submitter_groups", sa.JSON(none_as_null=True), comment=comment))


def downgrade() -> None:
    op.execute("DELETE FROM queue_objects WHERE kind = 'UserLimit'")
    op.execute("DELETE FROM queue_object_versions WHERE kind = 'UserLimit'")
    op.execute("UPDATE head SET compatible_with = '0015' WHERE compatible_with = '0016'")
    op.drop_column("workloads", "submitter_groups")
