"""Write data/cutlass_trees.json, cutlass_files.json and cutlass_first.json.

    git clone https://github.com/NVIDIA/cutlass && cd cutlass
    for tag in v3.9.0 ... v4.7.0; do mkdir -p ../tags/$tag && git archive $tag include | tar x -C ../tags/$tag; done
    python tools/build_cutlass_trees.py --tags ../tags WHEEL...

`--tags` holds one folder for every released tag, with its `include/`. Each WHEEL is a published wheel that bundles
CUTLASS. The output depends on these inputs only.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tilewright.collectives.fingerprint import file_hashes
from tilewright.collectives.index import build_index
from tilewright.collectives.known import short_hash
from tilewright.collectives.model import Index
from tilewright.collectives.tree import open_tree

DATA = Path(__file__).parent.parent / "src" / "tilewright" / "data"


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def distance(left: dict[str, str], right: dict[str, str]) -> int:
    return sum(left.get(path) != right.get(path) for path in set(left) | set(right))


def read_trees(tags: Path, wheels: list[Path]) -> list[dict[str, Any]]:
    """Every distinct content: releases in their order, then what only wheels have."""
    trees: dict[str, dict[str, Any]] = {}
    for folder in sorted(tags.glob("v*"), key=lambda path: number(path.name[1:])):
        with open_tree(folder) as tree:
            (root,) = tree.cutlass_roots()
            entry = trees.setdefault(root.fingerprint, {"version": folder.name[1:], "names": [], "root": root})
            entry["names"].append(f"CUTLASS {folder.name[1:]}")
            entry["version"] = entry.get("ruleset", entry["version"])
            entry.setdefault("ruleset", folder.name[1:])
            entry.setdefault("files", {p: short_hash(h) for p, h in file_hashes(tree, root.include).items()})
    releases = list(trees.values())
    for wheel in wheels:
        with open_tree(wheel) as tree:
            library = tree.library()
            for root in tree.cutlass_roots():
                files = {p: short_hash(h) for p, h in file_hashes(tree, root.include).items()}
                entry = trees.setdefault(root.fingerprint, {"version": root.version, "names": [], "root": root})
                entry.setdefault("files", files)
                if "ruleset" not in entry:
                    nearest = min(releases, key=lambda other: (distance(files, other["files"]), -releases.index(other)))
                    entry["ruleset"] = nearest["version"]
                    print(
                        f"{wheel.name}: own content, {distance(files, nearest['files'])} files from {nearest['names']}"
                    )
                entry["names"].append(f"{library.distribution} {library.version}" if library else wheel.name)
    for fingerprint, entry in trees.items():
        entry["fingerprint"] = fingerprint
    return list(trees.values())


def write_files(trees: list[dict[str, Any]]) -> None:
    contents: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, entry in enumerate(trees):
        for path, digest in entry["files"].items():
            contents[path][digest].append(index)
    files = {path: sorted(map(list, contents[path].items()), key=lambda item: item[1]) for path in sorted(contents)}
    lines = ",\n".join(f"{json.dumps(path)}:{json.dumps(files[path], separators=(',', ':'))}" for path in files)
    fingerprints = json.dumps([entry["fingerprint"] for entry in trees], separators=(",", ":"))
    (DATA / "cutlass_files.json").write_text(f'{{"fingerprints":{fingerprints},\n"files":{{\n{lines}\n}}}}\n')


def first_seen(indexes: list[tuple[str, Index]]) -> dict[str, Any]:
    collectives: dict[str, str] = {}
    built: dict[str, str] = {}
    tags: dict[str, str] = {}
    accepted: dict[str, dict[str, str]] = {}
    for version, index in indexes:
        for item in index.collectives:
            collectives.setdefault(item.policy, version)
            if item.builders:
                built.setdefault(item.policy, version)
        for tag in index.schedules:
            tags.setdefault(tag.name, version)
            for builder in tag.builders:
                for arch in builder.archs:
                    accepted.setdefault(tag.name, {}).setdefault(f"{arch} {builder.op_class}", version)
    return {
        "oldest": indexes[0][0],
        "newest": indexes[-1][0],
        "collectives": collectives,
        "built": built,
        "tags": tags,
        "accepted": accepted,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tags", type=Path, required=True)
    parser.add_argument("wheels", type=Path, nargs="*")
    args = parser.parse_args()
    trees = read_trees(args.tags, sorted(args.wheels, key=lambda path: path.name))
    keys = ("fingerprint", "version", "ruleset", "names")
    lines = ",\n".join(json.dumps({key: entry[key] for key in keys}) for entry in trees)
    (DATA / "cutlass_trees.json").write_text(f'{{"trees":[\n{lines}\n]}}\n')
    write_files(trees)
    releases = [entry for entry in trees if entry["names"][0].startswith("CUTLASS ")]
    indexes = [(entry["names"][0].split()[1], build_index(entry["root"])) for entry in releases]
    (DATA / "cutlass_first.json").write_text(json.dumps(first_seen(indexes), indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
