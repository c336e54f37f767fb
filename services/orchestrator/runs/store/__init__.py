"""Where runs are kept: PostgreSQL, or SQLite in the data folder, by the same code."""
