"""Judges in other tools, one package or module a tool; each needs the extra of its name."""
