"""Table 1 of the likelihood-bias paper for any judge model (Ohi et al., Findings of ACL 2024)."""
