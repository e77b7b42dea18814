"""Folders and wheels as source trees: every CUTLASS found once, read in place, refused in a sentence."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mini_cutlass import FILES, VERSION, cutlass_fixture, own_cache, write_cutlass, write_wheel  # noqa: F401

from tilewright.collectives.tree import open_tree
from tilewright.errors import TreeError

Write = Callable[..., Path]


def roots(path: Path) -> list[tuple[str, str, tuple[str, ...]]]:
    with open_tree(path) as tree:
        return [(root.include, root.version, root.copies) for root in tree.cutlass_roots()]


def test_an_include_folder_a_checkout_and_a_wheel_are_all_trees(cutlass: Write, tmp_path: Path) -> None:
    include = cutlass("checkout/include")
    wheel = write_wheel(tmp_path / "thing-1.2-py3-none-any.whl", "thing/data/cutlass/include")
    assert roots(include) == [("", "9.8.7", ())]
    assert roots(tmp_path / "checkout") == [("include", "9.8.7", ())]
    assert roots(wheel) == [("thing/data/cutlass/include", "9.8.7", ())]


def test_the_fingerprint_is_that_of_the_content(cutlass: Write, tmp_path: Path) -> None:
    """Not of the path, the time stamps, the line ends, the licence's words, the reported version, or the container."""
    policies = FILES["cutlass/gemm/dispatch_policy.hpp"]
    plain = cutlass("a/include")
    same = [
        cutlass("b/deeper/include", newline="\r\n"),
        cutlass("c", {"cutlass/gemm/dispatch_policy.hpp": policies.replace("A licence.", "Another licence, 2026.")}),
        cutlass("d", {"cutlass/version.h": VERSION.format(1, 2, 3), "cutlass/README.md": "text"}),
        write_wheel(tmp_path / "w.whl", "x/include"),
    ]
    other = [
        cutlass("e", {"cutlass/gemm/dispatch_policy.hpp": policies + "// a comment\n"}),
        cutlass("f", {"cutlass/gemm/dispatch_policy.hpp": policies.replace("A licence.", "A longer\n * licence.")}),
        cutlass("g", {"cutlass/gemm/collective/new.hpp": "\n"}),
    ]

    def fingerprint(path: Path) -> str:
        with open_tree(path) as tree:
            return tree.cutlass_roots()[0].fingerprint

    first = fingerprint(plain)
    assert len(first) == 64
    assert [fingerprint(path) for path in same] == [first] * 4
    assert len({first, *map(fingerprint, other)}) == 4


def test_copies_and_links_are_one_root(cutlass: Write, tmp_path: Path) -> None:
    cutlass("root/a/include")
    cutlass("root/b/vendored/include")
    (tmp_path / "root" / "link").symlink_to(tmp_path / "root" / "a")
    (tmp_path / "root" / "a" / "again").symlink_to(tmp_path / "root" / "a" / "include")
    assert roots(tmp_path / "root") == [("a/include", "9.8.7", ("a/again", "b/vendored/include", "link/include"))]


def test_different_trees_under_one_root_are_all_there(cutlass: Write, tmp_path: Path) -> None:
    cutlass("root/one/include")
    cutlass("root/two/include", {"cutlass/gemm/collective/more.hpp": "// more\n"})
    assert [place for place, _, _ in roots(tmp_path / "root")] == ["one/include", "two/include"]


def test_loops_of_links_end(cutlass: Write, tmp_path: Path) -> None:
    include = cutlass("root/include")
    (include / "cutlass" / "up").symlink_to(tmp_path / "root")
    (include / "cutlass" / "gemm" / "self").symlink_to(include / "cutlass" / "gemm")
    (tmp_path / "root" / "loop").symlink_to(tmp_path / "root" / "loop")
    (tmp_path / "root" / "above").symlink_to(tmp_path)
    for number in range(12):  # a diamond of links: 2**12 paths, 12 folders
        folder = tmp_path / "root" / f"d{number}"
        folder.mkdir()
        for name in ("left", "right"):
            (folder / name).symlink_to(tmp_path / "root" / f"d{number + 1}")
    assert roots(tmp_path / "root")[0][:2] == ("include", "9.8.7")
    with open_tree(tmp_path / "root") as tree:
        assert len(list(tree.files())) < 100


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_folder_is_noted_and_passed_over(cutlass: Write, tmp_path: Path) -> None:
    cutlass("root/include")
    closed = tmp_path / "root" / "closed"
    closed.mkdir()
    closed.chmod(0)
    try:
        with open_tree(tmp_path / "root") as tree:
            assert len(tree.cutlass_roots()) == 1
            assert any("closed" in note for note in tree.notes)
    finally:
        closed.chmod(0o700)


def test_what_is_no_tree_is_refused_in_one_sentence(cutlass: Write, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    text = tmp_path / "notes.txt"
    text.write_text("no archive")
    (tmp_path / "empty.whl").write_bytes(b"")
    wheel = write_wheel(tmp_path / "w.whl", "x/include")
    cut = tmp_path / "cut.whl"
    cut.write_bytes(wheel.read_bytes()[:-100])
    old = tmp_path / "old"
    (old / "cutlass").mkdir(parents=True)
    (old / "cutlass" / "version.h").write_text(VERSION.format(2, 11, 0))
    include = cutlass("include")
    os.mkfifo(tmp_path / "pipe")
    cases = {
        str(tmp_path / "missing"): "nothing at",
        "": "no path",
        "a\0b": "no path",
        str(tmp_path / "empty"): "looked for cutlass/version.h beside a folder cute",
        str(text): "not a wheel",
        str(tmp_path / "empty.whl"): "not a wheel",
        str(cut): "cut off",
        str(old): "CUTLASS 2",
        str(include / "cutlass"): "pass the folder above",
        str(tmp_path / "pipe"): "neither a folder nor a file",
    }
    for path, words in cases.items():
        with pytest.raises(TreeError) as error, open_tree(path) as tree:
            tree.cutlass_roots()
        assert words in error.value.msg, path
        assert "\n" not in error.value.msg
        assert error.value.field == "root"


def test_a_damaged_member_is_an_error_of_its_archive(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "w.whl", "x/include")
    data = bytearray(wheel.read_bytes())
    with zipfile.ZipFile(wheel) as archive:
        info = archive.getinfo("x/include/cutlass/gemm/dispatch_policy.hpp")
    for offset in range(60, 120):
        data[info.header_offset + offset] ^= 0xFF
    wheel.write_bytes(bytes(data))
    with open_tree(wheel) as tree, pytest.raises(TreeError, match="damaged"):
        tree.read("x/include/cutlass/gemm/dispatch_policy.hpp")


def test_members_that_would_leave_the_archive_are_not_part_of_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as archive:
        for name in ("../up.hpp", "/root.hpp", "a/../../b.hpp", "fine/x.hpp"):
            archive.writestr(name, "x")
    with open_tree(tmp_path / "w.whl") as tree:
        assert list(tree.files()) == ["fine/x.hpp"]


def test_reading_never_leaves_a_folder(cutlass: Write, tmp_path: Path) -> None:
    include = cutlass("root/include")
    (tmp_path / "secret").write_text("no")
    with open_tree(include) as tree:
        for path in ("../../secret", "/etc/passwd", "cutlass/../../../secret", "cutlass\0"):
            with pytest.raises(TreeError):
                tree.read(path)
        with pytest.raises(TreeError):
            tree.read("cutlass")


def test_a_file_too_large_for_source_text_is_refused(cutlass: Write) -> None:
    include = cutlass("include")
    with (include / "cutlass" / "gemm" / "collective" / "big.hpp").open("wb") as stream:
        stream.truncate(1 << 30)
    with open_tree(include) as tree, pytest.raises(TreeError, match="too large"):
        tree.cutlass_roots()


def test_files_are_filtered_by_folder_and_suffix(cutlass: Write, tmp_path: Path) -> None:
    cutlass("include")
    wheel = write_wheel(tmp_path / "w.whl", "include")
    for path in (tmp_path, wheel):
        with open_tree(path) as tree:
            found = list(tree.files((".inl",), "include/cutlass/gemm"))
            assert found == [
                "include/cutlass/gemm/collective/builders/sm120_blockwise_mma_builder.inl",
                "include/cutlass/gemm/collective/builders/sm120_mma_builder.inl",
            ]
            assert list(tree.files((".inl",), "nowhere")) == []
            assert tree.list_dir("include/cutlass/gemm") == ["collective", "dispatch_policy.hpp"]
            assert tree.exists("include/cute")
            assert not tree.exists("include/cutex")


def test_names_that_are_not_utf8_do_not_stop_a_search(cutlass: Write, tmp_path: Path) -> None:
    cutlass("root/include")
    try:
        os.mkdir(os.fsencode(tmp_path / "root") + b"/\xff\xfe")  # noqa: PTH102 - a name that no str can spell plainly
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    write_cutlass(tmp_path / "root" / os.fsdecode(b"\xff\xfe"), {"cutlass/gemm/collective/x.hpp": "//\n"})
    assert len(roots(tmp_path / "root")) == 2


class TestLibrary:
    def test_a_wheel_says_what_it_is(self, tmp_path: Path) -> None:
        wheel = write_wheel(tmp_path / "w.whl", "thing/include")
        with open_tree(wheel) as tree:
            library = tree.library()
            assert library is not None
            assert (library.name, library.version, library.distribution) == ("thing", "1.2", "thing")
            assert tree.cutlass_roots()[0].owner is None or tree.cutlass_roots()[0].owner == library

    @pytest.mark.parametrize("inside", [False, True])
    def test_an_installed_package_is_recognised_from_above_and_from_inside(self, tmp_path: Path, inside: bool) -> None:
        package = tmp_path / "site-packages" / "flashinfer"
        write_cutlass(package / "data" / "cutlass" / "include")
        (package / "__init__.py").write_text("raise SystemExit('imported')\n")
        (package / "_build_meta.py").write_text('"""Build metadata."""\n__version__ = "0.6.2"\n')
        with open_tree(package if inside else package.parent) as tree:
            library = tree.library()
            assert library is not None
            assert (library.name, library.version) == ("flashinfer", "0.6.2")
            assert tree.cutlass_roots()[0].owner == library

    def test_a_site_packages_with_several_libraries_names_the_owner_of_each_tree(self, tmp_path: Path) -> None:
        for package, distribution in (("flashinfer", "flashinfer_python-0.7.4"), ("vllm", "vllm-0.33.0")):
            write_cutlass(tmp_path / package / "include", {"cutlass/gemm/collective/own.hpp": f"// {package}\n"})
            (tmp_path / package / "__init__.py").touch()
            meta = tmp_path / f"{distribution}.dist-info"
            meta.mkdir()
            name, version = distribution.split("-")
            (meta / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nVersion: 9\n")
        with open_tree(tmp_path) as tree:
            owners = {root.include: root.owner for root in tree.cutlass_roots()}
        assert {path: owner and (owner.name, owner.version) for path, owner in owners.items()} == {
            "flashinfer/include": ("flashinfer", "0.7.4"),
            "vllm/include": ("vllm", "0.33.0"),
        }

    def test_a_tree_that_is_no_library_has_none(self, cutlass: Write) -> None:
        with open_tree(cutlass("include")) as tree:
            assert tree.library() is None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400), st.integers(0, 400), st.booleans())
def test_garbage_archives_are_refused_or_read_but_never_crash(
    tmp_path: Path, junk: bytes, at: int, keep_magic: bool
) -> None:
    whole = tmp_path / "whole.whl"
    if not whole.exists():
        write_wheel(whole, "x/include")
    data = whole.read_bytes()
    spoilt = data[: len(data) - at] + junk + data[len(data) - at + len(junk) :]
    target = tmp_path / "spoilt.whl"
    target.write_bytes(spoilt if keep_magic else junk)
    try:
        with open_tree(target) as tree:
            tree.cutlass_roots()
    except TreeError as error:
        assert error.msg.endswith((".", ".'"))


def test_moving_a_tree_away_while_it_is_open_is_an_error_not_a_crash(cutlass: Write) -> None:
    include = cutlass("include")
    with open_tree(include) as tree:
        shutil.rmtree(include)
        with pytest.raises(TreeError):
            tree.cutlass_roots()
