"""The Hugging Face hub's data sets, when the hub cannot be reached."""

from __future__ import annotations

from pathlib import Path

from datasets.load import CachedDatasetModuleFactory
from httpx import TransportError
from huggingface_hub import get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

from evalbias.data.cells import DataError


def check_hub(name: str) -> None:
    """Refuse a data set that is not in the cache if the hub cannot be reached: datasets would retry for half a minute.

    Args:
        name: Folder, or name of a data set on the hub.

    Raises:
        DataError: The hub cannot be reached, or the text is no name.
    """
    if Path(name).exists():
        return
    try:
        get_hf_file_metadata(hf_hub_url(name, "README.md", repo_type="dataset"))
    except HfHubHTTPError:
        pass  # the hub answers: datasets says what is missing, or who may read it
    except (TransportError, OfflineModeIsEnabled) as error:
        _check_cache(name, error)
    except HFValidationError as error:
        raise _unknown(name) from error


def _check_cache(name: str, error: Exception) -> None:
    try:
        CachedDatasetModuleFactory(name).get_module()
    except FileNotFoundError:
        raise _unknown(name) from error


def _unknown(name: str) -> DataError:
    return DataError(
        f"hf:{name} is neither a folder nor a data set on Hugging Face's hub or in the local cache: check the name and "
        "the network, or give a file."
    )
