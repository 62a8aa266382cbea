"""Throughput of judge probabilities, compared with other methods of computing them."""
