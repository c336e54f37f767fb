"""The four services. None imports another."""
