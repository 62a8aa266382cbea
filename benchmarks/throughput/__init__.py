"""How fast judge probabilities come, beside other ways to ask for them."""
