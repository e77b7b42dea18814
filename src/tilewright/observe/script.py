"""The collector as one script, for a host where nothing can be installed: `... --script | ssh host python3 -`."""

from __future__ import annotations

import re
from importlib import resources

PARTS = (
    "withheld", "observe/collector/tools", "observe/collector/gpus", "observe/collector/host",
    "observe/collector/server", "observe/collector/metrics", "observe/collector/main",
)  # fmt: skip
"""The collector's modules, each after those that it uses."""
_OWN_IMPORT = re.compile(r"^from tilewright\.(?:withheld|observe\.collector\.\w+) import [^\n(]*\n", re.M)
_FUTURE = "from __future__ import annotations\n"
_ENTRY = re.compile(r"\nif __name__ == .*\Z", re.S)
_HEADER = '''"""One read-only snapshot of this host and its server, as JSON on standard output.

Made by `tilewright observe --script`. Standard library only, Python 3.8 or later. It reads /proc, /sys, nvidia-smi
and the server's /metrics on this host; it changes nothing, and secrets (keys, tokens, the environment) stay here.
"""
'''


def script() -> str:
    """The whole collector as the source of one script."""
    folder = resources.files("tilewright")
    pieces = [_HEADER, "\n", _FUTURE]
    for part in PARTS:
        text = folder.joinpath(f"{part}.py").read_text(encoding="utf-8")
        text = _OWN_IMPORT.sub("", text.replace(_FUTURE, "", 1))
        pieces.append(f"\n# --- {part} ---\n{_ENTRY.sub('', text)}\n")
    pieces.append('\nif __name__ == "__main__":\n    sys.exit(collect_main(sys.argv[1:]))\n')
    return "".join(pieces)
