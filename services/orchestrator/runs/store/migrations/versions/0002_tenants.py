"""Runs belong to tenants. What was there before belongs to the default one."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def _tenant() -> sa.Column[str]:
    return sa.Column("tenant", sa.String(length=63), nullable=False, server_default="default")


def upgrade() -> None:
    """Go forward. SQLite copies the tables, which needs foreign keys to be off: see migrating.py."""
    op.drop_index("runs_by_principal", "runs")
    with op.batch_alter_table("runs") as runs:
        runs.add_column(_tenant())
        runs.drop_constraint("runs_request_id", type_="unique")
        runs.create_unique_constraint("runs_request_id", ["tenant", "principal", "request_id"])
    op.create_index("runs_by_principal", "runs", ["tenant", "principal", "run_id"])
    op.create_index("runs_by_tenant", "runs", ["tenant", "run_id"])
    # Without its names, the primary key can't be altered everywhere; it is a small table of names, and copied by hand.
    op.rename_table("principals", "principals_before")
    op.create_table(
        "principals",
        _tenant(),
        sa.Column("principal", sa.String(length=128), nullable=False),
        sa.Column("first_seen", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "principal", name="principals_by_tenant"),
    )
    op.execute("INSERT INTO principals (principal, first_seen) SELECT principal, first_seen FROM principals_before")
    op.drop_table("principals_before")
    for table in ("runs", "principals"):
        with op.batch_alter_table(table) as altered:
            # It was for the rows of before: from now on everybody says it.
            altered.alter_column("tenant", existing_type=sa.String(length=63), server_default=None, existing_nullable=False)


def downgrade() -> None:
    """Go back. Runs of other tenants than the default one are deleted: nobody could tell whose they are."""
    # SQLite's foreign keys are off meanwhile: what hangs on those runs goes by hand.
    for table in ("run_events", "evaluations", "model_usage"):
        op.execute(f"DELETE FROM {table} WHERE run_id IN (SELECT run_id FROM runs WHERE tenant <> 'default')")  # noqa: S608
    op.execute("DELETE FROM runs WHERE tenant <> 'default'")
    op.execute("DELETE FROM principals WHERE tenant <> 'default'")
    op.drop_index("runs_by_tenant", "runs")
    op.drop_index("runs_by_principal", "runs")
    with op.batch_alter_table("runs") as runs:
        runs.drop_constraint("runs_request_id", type_="unique")
        runs.drop_column("tenant")
        runs.create_unique_constraint("runs_request_id", ["principal", "request_id"])
    op.create_index("runs_by_principal", "runs", ["principal", "run_id"])
    op.rename_table("principals", "principals_before")
    op.create_table(
        "principals",
        sa.Column("principal", sa.String(length=128), nullable=False),
        sa.Column("first_seen", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("principal"),
    )
    op.execute("INSERT INTO principals SELECT principal, first_seen FROM principals_before")
    op.drop_table("principals_before")
