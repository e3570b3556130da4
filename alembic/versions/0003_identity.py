"""Identity of the database, and of the cluster whose workloads it has."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


# Both may be NULL, so that the version before still works on these tables.
def upgrade() -> None:
    op.add_column(
        "head",
        sa.Column(
            "identity",
            sa.Text(),
            comment="A UUID that every copy of this database shares; NULL until a Sluice has used it",
        ),
    )
    op.add_column(
        "head",
        sa.Column(
            "cluster",
            sa.Text(),
            comment="Identity of the cluster that the workloads are in; NULL until a Sluice has used it",
        ),
    )


def downgrade() -> None:
    op.drop_column("head", "cluster")
    op.drop_column("head", "identity")
