"""Figures that the self-bias paper prints (Xu et al. 2024): Bias and distance skewness."""

from __future__ import annotations

HUMAN = {"gpt-3.5-turbo": ((19.6, 0.803), (21.9, 0.885))}
"""Yoruba to English against a person's MQM scores, at iterations 0 and 10; of the models whose scores are recorded."""

BEST_OF_K = {1: (14.8, 0.735), 4: (16.1, 0.795), 8: (16.7, 0.800), 16: (18.0, 0.830), 32: (18.5, 0.840)}
"""DeepSeek-MoE, Yoruba to English, by k."""
