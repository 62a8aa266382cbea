"""The audit beside its peers, on judges whose biases were planted."""
