"""Model calls that a cache made unnecessary are kept beside those that were made."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    """Go forward. What is there was made."""
    op.add_column("model_usage", sa.Column("saved", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    """Go back. What was saved goes: without the column it would count as paid."""
    op.execute(sa.text("DELETE FROM model_usage WHERE saved"))
    with op.batch_alter_table("model_usage") as usage:
        usage.drop_column("saved")
