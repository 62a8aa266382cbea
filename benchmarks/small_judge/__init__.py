"""The small judge: trained from scratch on real text and real human scores."""
