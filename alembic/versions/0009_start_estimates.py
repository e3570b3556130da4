"""Estimated starts, and what they are learned from, kept over a restart."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


# A table of its own, so that the version before still works on this schema.
def upgrade() -> None:
    op.create_table(
        "start_estimates",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("shown", sa.JSON(), nullable=False, comment="The estimates of pending workloads"),
        sa.Column("learned", sa.JSON(), nullable=False, comment="Errors of past estimates, and those still open"),
        sa.CheckConstraint("id = 1", name=op.f("ck_start_estimates_single_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_start_estimates")),
        comment="The latest estimated starts, as their process wrote them; no row: there were none",
    )


def downgrade() -> None:
    op.drop_table("start_estimates")
