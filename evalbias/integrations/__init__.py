"""Judges in other tools, a package or module per tool; each needs the extra of its name."""
