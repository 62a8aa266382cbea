"""Language models that tell their token probabilities."""
