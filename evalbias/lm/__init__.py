"""Language models that return token probabilities.

Models behind OpenAI-compatible servers, and how each kind of server returns probabilities.
"""

import os

# DSPy and litellm would fetch the current price list of hosted models: the list that they ship is enough.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
