"""A pretrained model adapted to human ratings: recipe, record and evaluation of its LoRA adapter."""
