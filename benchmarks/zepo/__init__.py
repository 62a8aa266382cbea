"""Tables and curves of the fairness paper for any judge model (Zhou et al., EMNLP 2024), with its baselines."""
