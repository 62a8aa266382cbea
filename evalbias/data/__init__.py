"""Data sets as DSPy examples, and the synthetic world."""
