"""The compose workflow: write, review, revise."""
