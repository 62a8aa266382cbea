"""Language models that return token probabilities."""
