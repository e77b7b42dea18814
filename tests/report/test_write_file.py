"""Files are written whole or not at all, and nothing that is no file is replaced by one."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tilewright.errors import InputError
from tilewright.report.write_file import check_new, write_new


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("force", [True, False])
def test_a_pipe_or_a_device_is_written_into_and_stays_one(pipe: Path, force: bool) -> None:
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_new(str(pipe), b"content", force=force)
        assert os.read(reader, 100) == b"content"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_log_for_a_ci_does_not_take_a_device_away(tmp_path: Path) -> None:
    """`--sarif` replaces the log of a former run; as root that went for /dev/null too."""
    from tilewright.report.sarif import write_sarif

    before = Path("/dev/null").stat()
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    write_sarif(str(link), [])
    assert link.is_symlink()
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert Path("/dev/null").stat().st_ino == before.st_ino


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    with pytest.raises(InputError, match="cannot be written: No space left"):
        write_new(str(link), b"content", force=True)


def test_the_file_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    with pytest.raises(InputError, match="exists and is kept"):
        write_new(str(link), b"new", force=False)
    write_new(str(link), b"new", force=True)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["link", "target"]


def test_a_folder_that_takes_no_file_is_found_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """(The tests may run as a user for whom every folder may be written.)"""

    def refused(**_: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    with pytest.raises(InputError, match="cannot be written: Permission denied"):
        check_new(str(tmp_path / "out"), force=False)
    assert list(tmp_path.iterdir()) == []
