"""The papers' tables and the speed comparisons; run from a checkout, not installed."""
