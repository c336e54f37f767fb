"""Who may call, and what they may do. Knows no transport."""
