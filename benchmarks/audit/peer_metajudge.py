"""metajudge on stdin's draws, one a line: differential functioning of long outputs. Runs in metajudge's environment.

The longer half of the outputs is the focal group, the mean human rating the external conditioner, as its documentation
recommends; a class B or C of its effect size (not negligible) counts.
"""

import json
import sys
import warnings
from statistics import median

import pandas as pd
from metajudge import Ratings, logistic_dif

warnings.simplefilter("ignore")  # classes are indicative below 500 observations
for line in sys.stdin:
    numbers = json.loads(line)
    middle = median(numbers["lengths"])
    halves = ["long" if length > middle else "short" for length in numbers["lengths"]]
    columns = {"item": numbers["ids"], "rater": "judge", "score": numbers["scores"], "half": halves}
    ratings = Ratings.from_long(pd.DataFrame(columns), item="item", rater="rater", score="score", stratum="half")
    people = dict(zip(numbers["ids"], numbers["people"], strict=True))
    found = logistic_dif(ratings, focal="long", reference="short", conditioner=people)
    print(json.dumps(["verbosity"] if found.dif_class in "BC" else []), flush=True)
