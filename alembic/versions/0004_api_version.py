"""API version of each workload's object, because kinds of different groups may have the same name."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


# With a default, so that the version before still works on this table.
def upgrade() -> None:
    op.add_column(
        "workloads",
        sa.Column(
            "api_version",
            sa.Text(),
            nullable=False,
            server_default="batch/v1",
            comment="GROUP/VERSION of its object",
        ),
    )


def downgrade() -> None:
    op.drop_column("workloads", "api_version")
