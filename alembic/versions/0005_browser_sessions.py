"""Browser sessions of the dashboard, shared by all replicas."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


# A table of its own, so that the version before still works on this schema.
def upgrade() -> None:
    op.create_table(
        "browser_sessions",
        sa.Column("digest", sa.Text(), nullable=False, comment="SHA-256 of the secret that the browser has"),
        sa.Column("sealed_token", sa.LargeBinary(), nullable=False, comment="Encrypted by a key made from that secret"),
        sa.Column("began_at", INSTANT, nullable=False),
        sa.Column("ends_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_browser_sessions")),
        comment="Who is signed in to the dashboard; not part of an export",
    )


def downgrade() -> None:
    op.drop_table("browser_sessions")
