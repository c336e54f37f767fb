"""Writing by rule, and reading the citations of a text, whoever wrote it."""
