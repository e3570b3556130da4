"""Drains: no table changes, but the version before does not know the kind."""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    op.execute("DELETE FROM queue_objects WHERE kind = 'Drain'")
    op.execute("DELETE FROM queue_object_versions WHERE kind = 'Drain'")
    op.execute("UPDATE head SET compatible_with = '0014' WHERE compatible_with = '0015'")
