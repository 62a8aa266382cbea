"""Servers that speak OpenAI's protocol, and what each kind of them tells of its probabilities."""
