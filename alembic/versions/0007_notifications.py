"""Outbox of notifications, and the delivery state of each Subscription."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


# Tables of their own, so that the version before still works on this schema, until a Subscription is written.
def upgrade() -> None:
    op.create_table(
        "notification_progress",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "transition_id", sa.BigInteger(), nullable=False, comment="Of the last transition that was looked at"
        ),
        sa.Column("version_id", sa.BigInteger(), nullable=False, comment="Of the last version of a queue object"),
        sa.CheckConstraint("id = 1", name=op.f("ck_notification_progress_single_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notification_progress")),
        comment="Up to where Subscriptions have been told; no row: there are none",
    )
    op.create_table(
        "notification_outbox",
        sa.Column("id", ID, nullable=False),
        sa.Column("subscription", sa.Text(), nullable=False, comment="uid of the Subscription"),
        sa.Column("event_id", sa.Text(), nullable=False, comment="The same for every attempt to send it"),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False, comment="That have failed"),
        sa.Column("event", sa.JSON(), nullable=False, comment="The CloudEvent"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notification_outbox")),
        sa.UniqueConstraint("subscription", "event_id", name=op.f("uq_notification_outbox_subscription_event_id")),
        comment="Notifications that are not delivered yet",
    )
    op.create_table(
        "subscription_states",
        sa.Column("subscription", sa.Text(), nullable=False, comment="uid of the Subscription"),
        sa.Column(
            "waits_told_to", INSTANT, comment="Workloads that were queued by then are told if they wait too long"
        ),
        sa.Column("hour", INSTANT, comment="The hour that these are of:"),
        sa.Column("in_hour", sa.Integer(), server_default="0", nullable=False, comment="Notifications made in it"),
        sa.Column("left_out", sa.JSON(), nullable=False, comment="Number by type of event of those beyond the limit"),
        sa.Column("delivered", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("delivered_at", INSTANT, comment="The last one"),
        sa.Column("dropped", sa.BigInteger(), server_default="0", nullable=False, comment="Not delivered within days"),
        sa.Column(
            "failures", sa.Integer(), server_default="0", nullable=False, comment="Attempts since the last success"
        ),
        sa.Column("failed_at", INSTANT, comment="The first failure since the last success"),
        sa.Column(
            "error",
            sa.Text(),
            nullable=False,
            comment="Of the last failure; empty: there was none since the last success",
        ),
        sa.PrimaryKeyConstraint("subscription", name=op.f("pk_subscription_states")),
        comment="What became of the notifications of each Subscription",
    )


# Subscriptions go with their tables: the version before stumbles over objects of a kind that it does not know.
def downgrade() -> None:
    op.execute("DELETE FROM queue_objects WHERE kind = 'Subscription'")
    op.execute("DELETE FROM queue_object_versions WHERE kind = 'Subscription'")
    op.execute("UPDATE head SET compatible_with = '0001'")
    op.drop_table("subscription_states")
    op.drop_table("notification_outbox")
    op.drop_table("notification_progress")
