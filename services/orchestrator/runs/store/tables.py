"""The run store's tables. Migrations make them; a test compares the two.

People query these with SQL, so columns hold what they ask for, and only events and requests are JSON.
"""

import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    false,
)

metadata: Final = MetaData()


class Moment(TypeDecorator[datetime.datetime]):
    """A time in UTC. SQLite keeps no zone, so it is put back on reading."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime.datetime | None, dialect: Dialect) -> datetime.datetime | None:
        """To the database."""
        if value is None or dialect.name == "postgresql":
            return value
        return value.astimezone(datetime.UTC).replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime.datetime | None:
        """From the database."""
        if value is None:
            return None
        moment: datetime.datetime = value
        return moment.astimezone(datetime.UTC) if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)


principals: Final = Table(
    "principals",
    metadata,
    Column("tenant", String(63), primary_key=True),
    Column("principal", String(128), primary_key=True),
    Column("first_seen", Moment, nullable=False),
)

runs: Final = Table(
    "runs",
    metadata,
    Column("run_id", String(36), primary_key=True),
    Column("workflow", String(64), nullable=False),
    Column("tenant", String(63), nullable=False),
    Column("principal", String(128), nullable=False),
    # Null when the caller gave none: nulls are never equal, so the constraint lets them pass.
    Column("request_id", String(128)),
    Column("request_hash", String(64), nullable=False),
    Column("request", Text, nullable=False),
    Column("question", Text, nullable=False),
    Column("collection", String(63), nullable=False),
    Column("state", String(16), nullable=False),
    Column("outcome", String(32)),
    Column("approved", Boolean, nullable=False, server_default=false()),
    Column("score", Double),
    Column("corrections", Integer, nullable=False, server_default="0"),
    Column("create_time", Moment, nullable=False),
    Column("finish_time", Moment),
    Column("last_sequence", BigInteger, nullable=False),
    Column("max_cost_micros", BigInteger),
    Column("max_tokens", BigInteger),
    # Which request waits for a person; 0 when none does.
    Column("approval", Integer, nullable=False, server_default="0"),
    Column("cancel_requested", Boolean, nullable=False, server_default=false()),
    # Seconds since 1970 by the database's clock: replicas need not agree about the time.
    Column("deadline", Double, nullable=False),
    Column("lease_owner", String(64)),
    Column("lease_expires", Double, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("takeovers", Integer, nullable=False, server_default="0"),
    Column("checkpoints_pruned", Boolean, nullable=False, server_default=false()),
    Column("events_pruned", Boolean, nullable=False, server_default=false()),
    UniqueConstraint("tenant", "principal", "request_id", name="runs_request_id"),
    Index("runs_by_lease", "state", "lease_expires"),
    Index("runs_by_principal", "tenant", "principal", "run_id"),
    Index("runs_by_tenant", "tenant", "run_id"),
    Index("runs_by_end", "finish_time"),
)

run_events: Final = Table(
    "run_events",
    metadata,
    Column("run_id", ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("type", String(32), nullable=False),
    Column("create_time", Moment, nullable=False),
    Column("payload", Text, nullable=False),
)

evaluations: Final = Table(
    "evaluations",
    metadata,
    Column("run_id", ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("subject", String(128), nullable=False),
    Column("iteration", Integer, nullable=False),
    Column("score", Double, nullable=False),
    Column("threshold", Double),
    Column("passed", Boolean, nullable=False),
    Column("verdict", String(16), nullable=False),
    Column("explanation", Text, nullable=False),
)

model_usage: Final = Table(
    "model_usage",
    metadata,
    Column("run_id", ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("sequence", BigInteger, nullable=False),
    Column("model", String(256), nullable=False),
    Column("served_model", String(256), nullable=False),
    Column("operation", String(64), nullable=False),
    Column("prompt_version", String(64), nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("estimated", Boolean, nullable=False),
    Column("cost_micros", BigInteger),
    Column("latency_seconds", Double, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("error", String(32)),
    Column("saved", Boolean, nullable=False, server_default=false()),
)

prompt_versions: Final = Table(
    "prompt_versions",
    metadata,
    Column("operation", String(64), primary_key=True),
    Column("version", String(64), primary_key=True),
    Column("first_seen", Moment, nullable=False),
)
