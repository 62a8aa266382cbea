"""How the embedded judge is made."""
