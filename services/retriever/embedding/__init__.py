"""Dense vectors of passages and queries: `base` has the protocol, the other modules the providers."""
