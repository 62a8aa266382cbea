"""Models behind OpenAI-compatible servers, and how each kind of server returns probabilities."""
