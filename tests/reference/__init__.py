"""Plain implementations, written to be checked by eye, that the fast ones are tested against."""
