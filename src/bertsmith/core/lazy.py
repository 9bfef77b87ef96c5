"""Tables whose entries are imported or computed on first access, not with the table."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)
Entry = TypeVar("Entry")


class LazyTable(Mapping[Name, Entry]):
    """Entries by name. `entry` imports one, and is called once for each name that is used."""

    def __init__(self, names: Iterable[Name], entry: Callable[[Name], Entry]) -> None:
        self._names = dict.fromkeys(names)
        self._entry = entry
        self._imported: dict[Name, Entry] = {}

    def __getitem__(self, name: Name) -> Entry:
        if name not in self._imported:
            if name not in self._names:
                raise KeyError(name)
            self._imported[name] = self._entry(name)
        return self._imported[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[Name]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class CharacterTable(dict[int, str]):
    """A table for `str.translate` that replaces each character by a `rule`."""

    def __init__(self, rule: Callable[[str], str]) -> None:
        super().__init__()
        self._rule = rule

    def __missing__(self, code: int) -> str:
        self[code] = result = self._rule(chr(code))
        return result
