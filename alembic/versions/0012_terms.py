"""Terms of admission of workloads."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


# It may be NULL, so that the version before still works on this table.
def upgrade() -> None:
    op.add_column(
        "workloads",
        sa.Column("terms", sa.JSON(), comment="What its user permits or waits for; NULL: nothing special"),
    )


def downgrade() -> None:
    op.execute("UPDATE head SET compatible_with = '0011' WHERE compatible_with = '0012'")
    op.drop_column("workloads", "terms")
