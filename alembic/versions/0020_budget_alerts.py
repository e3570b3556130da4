"""Alerts of Budgets in notifications: up to which alert each Subscription was told."""

import sqlalchemy as sa
from alembic import op

from admission.store.database.instant import Instant

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "Alerts of Budgets that were reached by then were told"
    op.add_column("subscription_states", sa.Column("alerts_told_to", Instant(), comment=comment))


def downgrade() -> None:
    op.drop_column("subscription_states", "alerts_told_to")
