"""One translation unit: its headers found and preprocessed, its declarations indexed by name."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Final

from tilewright.libraries.cpp_source.declare import Decl, parse
from tilewright.libraries.cpp_source.preprocess import Macro, Preprocessor
from tilewright.libraries.cpp_source.tokens import NotRead, Token

Read = Callable[[str], str | None]
"""The text of a file of the tree, or None when there is none."""

MAX_HEADERS: Final = 600
"""Most headers that one unit may pull in from the library itself."""
_MAX_INCLUDE_DEPTH: Final = 60


class Headers:
    """What a list of includes brings: macros and declarations. Shared by all units with the same includes."""

    def __init__(self, read: Read, folders: tuple[str, ...], defines: dict[str, str]) -> None:
        self._read, self._folders = read, folders
        self._seen: set[str] = set()
        self._depth = 0
        self.preprocessor = Preprocessor(defines, self._include)
        self.files: list[tuple[str, list[Token]]] = []
        self.skipped: list[str] = []
        self._names: list[tuple[set[str], str, list[Token]]] = []
        self._decls: dict[str, list[Decl]] = {}

    @property
    def macros(self) -> dict[str, Macro]:
        return self.preprocessor.macros

    def add(self, text: str, file: str) -> list[Token]:
        """Preprocess one more source and index what it declares."""
        tokens = self.preprocessor.process(text, file)
        self.files.append((file, tokens))
        self._names.append(({token.text for token in tokens if token.kind == "name"}, file, tokens))
        return tokens

    def _include(self, name: str, asker: str) -> None:
        path = self._find(name, asker)
        if path is None or path in self._seen:
            if path is None:
                self.skipped.append(name)
            return
        if len(self._seen) >= MAX_HEADERS or self._depth >= _MAX_INCLUDE_DEPTH:
            raise NotRead(f"more than {MAX_HEADERS} headers", asker, 1)
        self._seen.add(path)
        text = self._read(path)
        if text is None:
            return
        self._depth += 1
        try:
            self.add(text, path)
        finally:
            self._depth -= 1

    def _find(self, name: str, asker: str) -> str | None:
        """The file that `name` means: beside the asker, else in the include folders."""
        if ".." in name or not name.startswith("/"):
            for folder in (posixpath.dirname(asker), *self._folders):
                path = posixpath.normpath(posixpath.join(folder, name))
                if path in self._seen or (not path.startswith("..") and self._read(path) is not None):
                    return path
        return None

    def declarations(self, name: str) -> list[Decl]:
        """Every declaration called `name`, in the order of the files. A file is parsed once one of its names is asked
        for."""
        waiting = [entry for entry in self._names if name in entry[0]]
        for entry in waiting:
            self._names.remove(entry)
            try:
                decls = parse(entry[2])
            except NotRead:
                continue
            for decl in decls:
                self._index(decl)
        return self._decls.get(name, [])

    def _index(self, decl: Decl) -> None:
        if decl.name and decl.kind not in ("branch", "block"):
            self._decls.setdefault(decl.name, []).append(decl)
