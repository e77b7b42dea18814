"""`collectives --ssh`, `tactics --ssh`: sources through an ssh that runs here, and whatever a far host may answer."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tilewright.errors import InputError, ToolError
from tilewright.observe import remote_tree
from tilewright.observe.collector import sender
from tilewright.observe.remote_tree import fetch_tree

FAKE_SSH = """#!/bin/sh
while [ "$1" != "--" ]; do shift; done
shift; shift
echo "$*" >> "$FAKE_SSH_LOG"
exec sh -c "$*"
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `ssh` on PATH that runs the command here, as a far shell would; the log of what it was asked for."""
    folder = tmp_path / "bin"
    folder.mkdir()
    _program(folder / "ssh", FAKE_SSH)
    (folder / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_SSH_LOG", str(tmp_path / "asked"))
    return tmp_path / "asked"


def _program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def _answers(ssh: Path, output: bytes, code: int = 0, stderr: str = "") -> None:
    """Let the far host answer just this."""
    (ssh.parent / "answer").write_bytes(output)
    text = f"#!/bin/sh\ncat >/dev/null\ncat '{ssh.parent / 'answer'}'\necho '{stderr}' >&2\nexit {code}\n"
    _program(ssh.parent / "bin" / "ssh", text)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A site-packages with a small vLLM in it."""
    root = tmp_path / "site packages $HOME"
    (root / "vllm" / "configs").mkdir(parents=True)
    (root / "vllm" / "__init__.py").write_text("raise SystemExit('it was run')\n", encoding="utf-8")
    (root / "vllm" / "configs" / "a.json").write_text("{}", encoding="utf-8")
    (root / "vllm" / "big.so").write_bytes(b"\x7fELF" * 1000)
    (root / "vllm-0.33.0.dist-info").mkdir()
    (root / "vllm-0.33.0.dist-info" / "METADATA").write_text("Name: vllm\nVersion: 0.33.0\n", encoding="utf-8")
    (root / "other").mkdir()
    (root / "other" / "secret.py").write_text("TOKEN = 1\n", encoding="utf-8")
    (root / "vllm" / "loop").symlink_to(root / "vllm")
    os.mkfifo(root / "vllm" / "pipe.py")
    return root


def test_only_the_sources_of_the_package_come_and_a_path_with_spaces_is_kept(ssh: Path, package: Path) -> None:
    found = fetch_tree("box", str(package), ["vllm"])
    assert found.name == f"box:{package}"
    with zipfile.ZipFile(found.archive) as opened:
        assert sorted(opened.namelist()) == [
            "vllm-0.33.0.dist-info/METADATA", "vllm/__init__.py", "vllm/configs/a.json",
        ]  # fmt: skip


def test_the_same_sources_are_sent_once_and_a_change_again(ssh: Path, package: Path) -> None:
    first = fetch_tree("box", str(package), ["vllm"])
    stamp = first.archive.stat().st_mtime_ns
    again = fetch_tree("other-box", str(package), ["vllm"])
    assert again.archive == first.archive
    assert again.archive.stat().st_mtime_ns == stamp
    (package / "vllm" / "configs" / "a.json").write_text("[]", encoding="utf-8")
    assert fetch_tree("box", str(package), ["vllm"]).archive != first.archive
    assert not list(first.archive.parent.glob("*.part"))


def test_the_package_folder_itself_and_a_wheel_will_do(ssh: Path, package: Path, tmp_path: Path) -> None:
    whole = fetch_tree("box", str(package), ["vllm"]).archive
    assert fetch_tree("box", str(package / "vllm"), ["vllm"]).archive == whole
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("vllm/__init__.py", "")
        made.writestr("vllm/x.so", "no")
    with zipfile.ZipFile(fetch_tree("box", str(wheel), ["vllm"]).archive) as opened:
        assert opened.namelist() == ["vllm/__init__.py"]


def test_a_cache_that_cannot_be_written_is_done_without(
    ssh: Path, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr(remote_tree, "_folder", lambda: tmp_path / "file" / "remote")
    assert zipfile.is_zipfile(fetch_tree("box", str(package), ["vllm"]).archive)


@pytest.mark.parametrize(
    ("root", "says"),
    [("/nowhere/at/all", "there is nothing at /nowhere/at/all"), ("$(touch /tmp/x)", "there is nothing at")],
)
def test_no_tree_there(ssh: Path, root: str, says: str) -> None:
    with pytest.raises(InputError, match="On box") as error:
        fetch_tree("box", root, ["vllm"])
    assert says in str(error.value)
    assert "looked in" in str(error.value)


def test_without_a_root_it_says_where_it_looked(ssh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="none of no_such_package was found") as error:
        fetch_tree("box", None, ["no_such_package"])
    assert "site-packages" in str(error.value)


@pytest.mark.parametrize("host", ["", "-oProxyCommand=x", "a b", "a\nb"])
def test_a_host_that_is_none(ssh: Path, host: str) -> None:
    with pytest.raises(InputError, match="is no host"):
        fetch_tree(host, None, ["vllm"])
    assert not ssh.exists()


@pytest.mark.parametrize(
    ("code", "stderr", "error", "says"),
    [
        (255, "Could not resolve hostname", InputError, "cannot be reached: Could not resolve hostname"),
        (127, "python3: not found", ToolError, "has no python3"),
        (1, "SyntaxError: invalid syntax", ToolError, "The search failed on box: SyntaxError"),
    ],
)
def test_a_host_that_does_not_do_it(ssh: Path, code: int, stderr: str, error: Any, says: str) -> None:
    _answers(ssh, b"Welcome\n", code, stderr)
    with pytest.raises(error, match=says):
        fetch_tree("box", None, ["vllm"])


def test_a_host_that_is_silent_is_given_up(ssh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(ssh.parent / "bin" / "ssh", "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(remote_tree, "LIMIT_S", 0.3)
    with pytest.raises(InputError, match="took more than"):
        fetch_tree("box", None, ["vllm"])


def _sent(members: list[tuple[str, bytes]], **changed: Any) -> bytes:
    """What a sender would answer with these members."""
    held, digest = io.BytesIO(), hashlib.sha256()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members:
            made.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
            written = name.encode()
            digest.update(b"%d:%s%d:" % (len(written), written, len(content)))
            digest.update(hashlib.sha256(content).digest())
    packed = held.getvalue()
    header = {"root": "/r", "digest": digest.hexdigest(), "sent": True, "zip_bytes": len(packed), **changed}
    return b"Welcome to box\n" + sender.MARK + json.dumps(header).encode() + b"\n" + packed


GOOD = [("vllm/__init__.py", b"x = 1\n")]


def test_what_a_sender_would_send_is_taken(ssh: Path) -> None:
    _answers(ssh, _sent(GOOD))
    assert zipfile.is_zipfile(fetch_tree("box", "/r", ["vllm"]).archive)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (_sent([("../../etc/x.py", b"")]), "outside the tree"),
        (_sent([("/etc/x.py", b"")]), "outside the tree"),
        (_sent([("a/..\\x.py", b"")]), "outside the tree"),
        (_sent(GOOD, digest="0" * 64), "not what it announced"),
        (_sent(GOOD, digest="../../x"), "not what it announced"),
        (_sent(GOOD)[:-40], "stopped sending"),
        (_sent(GOOD, zip_bytes=1 << 40), "wants to send"),
        (_sent(GOOD, zip_bytes=-1), "wants to send"),
        (_sent(GOOD, zip_bytes=20), "is damaged"),
        (_sent(GOOD, sent=False, digest="0" * 64, zip_bytes=0), "wants to send"),
        (sender.MARK + b"[1, 2\n", "no tree"),
        (sender.MARK + b"[" * 100_000 + b"\n", "no tree"),
        (b"x" * (3 << 20), "no tree"),
        (b"y\n" * (1 << 20), "no tree"),
        (_sent([("a.py", b"\0" * (33 << 20))]), "MiB of sources"),
    ],
)
def test_hostile_answers_are_refused_and_nothing_is_kept(ssh: Path, tmp_path: Path, answer: bytes, says: str) -> None:
    _answers(ssh, answer)
    with pytest.raises(ToolError, match=says):
        fetch_tree("box", "/r", ["vllm"])
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.suffix in (".zip", ".part")]
    assert not (tmp_path.parent / "etc").exists()


def test_repeated_names_are_refused(ssh: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        answer = _sent([*GOOD, *GOOD])
    _answers(ssh, answer)
    with pytest.raises(ToolError, match="repeated names"):
        fetch_tree("box", "/r", ["vllm"])


def test_the_sender_is_a_script_for_old_pythons() -> None:
    source = Path(sender.__file__).read_text(encoding="utf-8")
    compile(source, "sender.py", "exec", dont_inherit=True)
    assert "tilewright." not in source.replace("tilewright.observe", "")
    # Alone, with nothing of ours on its path, it answers.
    request = json.dumps({"root": "/nowhere", "packages": ["vllm"], "have": []})
    run = [sys.executable, "-I", "-", request]
    done = subprocess.run(run, input=source.encode(), capture_output=True, check=True)
    assert json.loads(done.stdout.removeprefix(sender.MARK))["error"].startswith("there is nothing at")


@pytest.mark.tree
def test_tactics_and_collectives_answer_as_on_the_host_itself(cli: Any, ssh: Path, flashinfer_062: Path) -> None:
    here = cli("tactics", "flashinfer", "--root", str(flashinfer_062), "--json").json
    there = cli("tactics", "flashinfer", "--ssh", "box", "--root", str(flashinfer_062), "--json").json
    assert (
        there["summary"] == here["summary"] == {"total": 40, "fits": 36, "overflow": 4, "illegal": 0, "unsupported": 0}
    )
    assert there["tactics"] == here["tactics"]
    assert there["library_version"] == "0.6.2"
    mine = cli("collectives", "--root", str(flashinfer_062), "--arch", "sm120", "--json").json
    far = cli("collectives", "--ssh", "box", "--root", str(flashinfer_062), "--arch", "sm120", "--json").json
    assert far["root"] == f"box:{flashinfer_062}"
    assert far["collectives"] == mine["collectives"]


def test_tactics_needs_a_root_or_a_host(cli: Any) -> None:
    result = cli("tactics", "flashinfer")
    assert result.code == 2
    assert "--ssh HOST" in result.err
