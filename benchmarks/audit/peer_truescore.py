"""truescore on stdin's draws, one a line: ``length_bias`` of scores or verdicts. Runs in truescore's environment.

The same regression of the judge's error on length stands in the report of ``truescore audit --covariate length``, which
refuses a file whose items all have a human label. An effect whose interval excludes 0 counts.
"""

import json
import sys

from truescore.bias import length_bias

for line in sys.stdin:
    numbers = json.loads(line)
    effect = length_bias(numbers["scores"], numbers["people"], numbers["lengths"])
    print(json.dumps(["verbosity"] if effect.significant else []), flush=True)
