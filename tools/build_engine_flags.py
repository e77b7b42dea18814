"""Pack the flags of SGLang and vLLM releases: tools/build_engine_flags.py sglang=TREE vllm=TREE ...

TREE is a wheel or unpacked sources of one release. Help texts are left out, flags that nothing reads are marked.
"""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path

import msgspec

from tilewright.collectives.tree import SourceTree, open_tree
from tilewright.libraries.engine_flags.model import FlagSet
from tilewright.libraries.engine_flags.read import engine_flags
from tilewright.libraries.engine_flags.uses import uses

OUT = Path(__file__).resolve().parents[1] / "src" / "tilewright" / "data" / "engine_flags"
WORD = re.compile(rb"[A-Za-z_]\w*")


def unused(tree: SourceTree, found: FlagSet) -> tuple[str, ...]:
    """First names of flags whose variable no other line of the package names."""
    package = found.flags[0].file.split(f"{found.engine}/", 1)[0] + found.engine
    counts: dict[bytes, int] = {}
    for path in tree.files((".py",), package):
        for word in WORD.findall(tree.read(path)):
            counts[word] = counts.get(word, 0) + 1
    # What occurs often is read somewhere; the exact search is for the rest.
    rare = [flag for flag in found.flags if counts.get(flag.dest.encode(), 0) <= 4 and not flag.deprecated]
    return tuple(flag.names[0] for flag in rare if uses(tree, package, flag) == ([], True))


def main() -> None:
    OUT.mkdir(exist_ok=True)
    for item in sys.argv[1:]:
        engine, _, path = item.partition("=")
        with open_tree(path) as tree:
            found = engine_flags(tree, engine)
            idle = unused(tree, found)
        flags = tuple(msgspec.structs.replace(flag, help=None) for flag in found.flags)
        packed = msgspec.structs.replace(
            found, flags=flags, unused=idle, snapshot=True, root=f"{engine} {found.version}, packaged"
        )
        data = msgspec.json.encode(packed)
        target = OUT / f"{engine}-{found.version}.json.gz"
        target.write_bytes(gzip.compress(data, 9, mtime=0))
        print(
            f"{target.name}: {len(flags)} flags, {len(found.environment)} variables, unused {idle}, "
            f"partial {found.partial}"
        )


if __name__ == "__main__":
    main()
