"""Reviews of drafts: a provider scores, rules lower, and the decision follows from the scores."""
