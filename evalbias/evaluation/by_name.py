"""Results whose parts are found by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from evalbias.evaluation.formatting import joined

Part = TypeVar("Part")


class ByName(Generic[Part]):
    """A result with named parts: ``result[name]``, ``name in result``, and iteration over the names.

    A subclass defines ``_parts``.
    """

    def __getitem__(self, name: str) -> Part:
        """Return a part by its name.

        Raises:
            KeyError: There is no such part; the message lists those that there are.
        """
        parts = self._parts()
        if name not in parts:
            raise KeyError(self._lacks(name))
        return parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts()

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts())

    def _parts(self) -> Mapping[str, Part]:
        raise NotImplementedError

    def _lacks(self, name: str) -> str:
        """Return why there is no such part, or which there are."""
        return f"{name!r} is not among {joined([repr(one) for one in self._parts()]) or 'no names at all'}."
