"""The judge: grades passages against a question and answers against passages."""
