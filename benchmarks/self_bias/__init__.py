"""Self-bias of the recorded loops, and of loops of the embedded model, where the true quality is known."""
