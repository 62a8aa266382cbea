"""The likelihood-bias paper's Table 1 for any judge model (Ohi et al., Findings of ACL 2024)."""
