"""Search settings with Optuna's TPE, drawn by a seed and by what was measured, and kept in a storage."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import optuna
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random

from evalbias.values import digest, to_json

VALUES = "values"  # key under which a study's storage keeps the values of a trial, also of a failed one
LOCKED = 300.0  # longest wait in seconds while another process, perhaps a paused one, writes to the same SQLite file


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, and the values that they reached."""

    number: int  # in the study
    settings: Mapping[str, Any]  # name -> choice
    values: tuple[float, ...]  # in the order of the directions; a trial with a NaN among them failed


def search_settings(
    space: Mapping[str, Sequence[Any]],
    measure: Callable[[dict[str, Any]], Sequence[float]],
    *,
    trials: int,
    seed: int,
    directions: Sequence[Literal["maximize", "minimize"]] = ("maximize",),
    storage: str | None = None,
    identity: Any = None,
) -> list[Trial]:
    """Choose settings, measure them, and choose the next ones by what was measured, until enough trials are finished.

    A search that was stopped continues from its finished trials, and draws the others as if it had not been. It ends
    early once as many trials have failed.

    Args:
        space: Name of a setting -> its choices: strings, numbers, booleans or None.
        measure: Takes settings, and returns a value for each direction; NaN where it is undefined.
        trials: Number of finished trials with which the search ends, whichever process ran them.
        seed: Seed of the sampler.
        directions: Whether each value is to be high or low.
        storage: Optuna's URL, such as ``sqlite:///study.db``: processes that name the same one share the study. None
            keeps it in memory.
        identity: JSON data of all else that decides the values, such as the model and the examples: with another, the
            study in the storage is another.

    Returns:
        Finished and failed trials, in the order in which they began.
    """
    name = f"evalbias-{digest(to_json([identity, seed, directions, space]), 12)}"
    study = _open(name, directions, storage)

    def begun(*states: TrialState) -> list[FrozenTrial]:
        return list(study.get_trials(deepcopy=False, states=states or None))

    abandoned = len(begun(TrialState.RUNNING))  # by a process that was killed, or another's that still runs
    while max(len(begun(TrialState.COMPLETE)), len(begun(TrialState.FAIL))) < trials:
        # Seeded by the number of trials so far, and blind to abandoned ones, so that a resumed study draws the same.
        number = len(begun()) - abandoned
        study.sampler = optuna.samplers.TPESampler(seed=seed * 1_000_003 + number, constant_liar=False)
        trial = study.ask()
        values = [*map(float, measure({one: trial.suggest_categorical(one, space[one]) for one in space}))]
        trial.set_user_attr(VALUES, values)
        failed = any(map(math.isnan, values))
        study.tell(trial, None if failed else values, TrialState.FAIL if failed else TrialState.COMPLETE)
    told = begun(TrialState.COMPLETE, TrialState.FAIL)
    return [Trial(one.number, one.params, tuple(one.user_attrs[VALUES])) for one in told]


@retry(  # processes that begin together trip over each other's tables; the next attempt finds them
    retry=retry_if_exception_type(SQLAlchemyError), stop=stop_after_attempt(5), wait=wait_random(0.1, 0.5), reraise=True
)
def _open(name: str, directions: Sequence[str], url: str | None) -> optuna.Study:
    storage: Any = url
    if url is not None and url.startswith("sqlite"):  # itself waits 5 seconds for another process
        storage = optuna.storages.RDBStorage(url, engine_kwargs={"connect_args": {"timeout": LOCKED}})
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # the trials hold what a caller wants to know
    try:
        return optuna.create_study(study_name=name, storage=storage, load_if_exists=True, directions=directions)
    finally:
        optuna.logging.set_verbosity(verbosity)
