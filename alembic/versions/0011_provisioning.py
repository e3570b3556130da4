"""ProvisioningRequestConfigs: no table changes, but the version before does not know the kind."""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    op.execute("DELETE FROM queue_objects WHERE kind = 'ProvisioningRequestConfig'")
    op.execute("DELETE FROM queue_object_versions WHERE kind = 'ProvisioningRequestConfig'")
    op.execute("UPDATE head SET compatible_with = '0010' WHERE compatible_with = '0011'")
