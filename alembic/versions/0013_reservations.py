"""Reservations: no table changes, but the version before does not know the kind."""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    op.execute("DELETE FROM queue_objects WHERE kind = 'Reservation'")
    op.execute("DELETE FROM queue_object_versions WHERE kind = 'Reservation'")
    op.execute("UPDATE head SET compatible_with = '0012' WHERE compatible_with = '0013'")
