"""BudgetRequests: no table changes, but the version before does not know the kind."""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    op.execute("DELETE FROM queue_objects WHERE kind = 'BudgetRequest'")
    op.execute("DELETE FROM queue_object_versions WHERE kind = 'BudgetRequest'")
    op.execute("UPDATE head SET compatible_with = '0018' WHERE compatible_with = '0019'")
