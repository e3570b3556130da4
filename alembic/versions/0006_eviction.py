"""Last eviction of each workload, kept while it is pending again."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


# It may be NULL, so that the version before still works on these tables.
def upgrade() -> None:
    op.add_column(
        "workloads",
        sa.Column("eviction", sa.JSON(none_as_null=True), comment="Reason, message and time of its last eviction"),
    )


def downgrade() -> None:
    op.drop_column("workloads", "eviction")
