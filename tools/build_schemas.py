"""Write docs/schema/<name>.json for every document that a command prints: python tools/build_schemas.py [FOLDER]."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tilewright.report.schema import NAMES, json_schema


def rendered(name: str) -> str:
    """The schema file of the document `name`."""
    return json.dumps(json_schema(name), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main(folder: Path) -> None:
    """Write every schema into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (folder / f"{name}.json").write_text(rendered(name), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "docs" / "schema")
