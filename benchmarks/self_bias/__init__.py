"""Self-bias: the recorded loops' published figures, and loops of the embedded model where the truth is known."""
