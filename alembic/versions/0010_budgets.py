"""Time limits of workloads, for Budgets, and what Budgets have left."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


INSTANT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


# It may be NULL, so that the version before still works on this table, until a Budget is written.
def upgrade() -> None:
    op.add_column(
        "workloads",
        sa.Column("max_seconds", sa.Integer(), comment="Its time limit; NULL: none, or it is not known"),
    )
    op.create_table(
        "budget_sums",
        sa.Column("budget", sa.Text(), nullable=False),
        sa.Column("at", INSTANT, nullable=False, comment="When it was written, by the leader"),
        sa.Column(
            "sums",
            sa.JSON(),
            nullable=False,
            comment="The period; by resource what is given, spent, reserved; alerts",
        ),
        sa.PrimaryKeyConstraint("budget", name=op.f("pk_budget_sums")),
        comment="What Budgets had left a short time ago, for their status; the accounts are computed from the ledger",
    )


# Budgets go with the column: the version before stumbles over objects of a kind that it does not know.
def downgrade() -> None:
    op.execute("DELETE FROM queue_objects WHERE kind = 'Budget'")
    op.execute("DELETE FROM queue_object_versions WHERE kind = 'Budget'")
    op.execute("UPDATE head SET compatible_with = '0009' WHERE compatible_with = '0010'")
    op.drop_table("budget_sums")
    op.drop_column("workloads", "max_seconds")
