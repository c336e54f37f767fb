"""Claims of an answer: found, checked against the passages, and scored."""
