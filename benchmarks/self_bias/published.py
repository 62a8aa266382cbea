"""Bias and distance skewness as printed in the self-bias paper (Xu et al. 2024)."""

from __future__ import annotations

HUMAN = {"gpt-3.5-turbo": ((19.6, 0.803), (21.9, 0.885))}
"""Yoruba to English against a human rater's MQM scores, at iterations 0 and 10, for the models with recorded scores."""

ALL_COVERED = {"gpt-3.5-turbo": {0: 0.02, 10: 0.20}}
"""Model -> iteration -> fraction of the CommonGen Hard outputs that cover all concepts (figure 4)."""

BEST_OF_K = {1: (14.8, 0.735), 4: (16.1, 0.795), 8: (16.7, 0.800), 16: (18.0, 0.830), 32: (18.5, 0.840)}
"""k -> figures of DeepSeek-MoE, Yoruba to English."""
