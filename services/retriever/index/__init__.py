"""Where passages are stored and found: `base` has the interface, `edge` and `qdrant_server` implement it."""
