"""What every Errata service shares, knowing none of them."""
