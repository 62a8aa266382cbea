"""Training and evaluation of the embedded judge."""
