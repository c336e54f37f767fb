"""Results that were paid for once: a cache in the process or in Redis, and calls that are made once at a time."""
