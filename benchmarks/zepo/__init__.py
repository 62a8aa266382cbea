"""The fairness paper's tables and curves for any judge model (Zhou et al., EMNLP 2024), and its baselines."""
