"""The copy of a project that trials share."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dynadiag.fixes.overlay_file import package_of
from dynadiag.fixes.project import Project, entries_of
from dynadiag.trial.program import Program
from tests.fixes.library import SCALE, install_package


def listing(root: Path) -> dict[str, bytes | None]:
    paths = sorted(root.rglob("*"))
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in paths}


def folder_becomes_file(root: Path) -> None:
    shutil.rmtree(root / "data")
    (root / "data").write_text("a file now")


def file_becomes_folder(root: Path) -> None:
    (root / "main.py").unlink()
    (root / "main.py" / "inner").mkdir(parents=True)


def link_becomes_file(root: Path) -> None:
    (root / "big.bin").unlink()
    (root / "big.bin").write_text("small")


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file is written": lambda root: (root / "main.py").write_text("y = 2\n"),
    "a file is added to": lambda root: (root / "data/log.txt").write_text("first\nsecond\n"),
    "a file is removed": lambda root: (root / "data/log.txt").unlink(),
    "a file is new": lambda root: (root / "data/new.txt").write_text(""),
    "folders are new": lambda root: (root / "out/deep/deeper").mkdir(parents=True),
    "a folder is removed": lambda root: shutil.rmtree(root / "data"),
    "a folder is moved": lambda root: (root / "data").rename(root / "moved"),
    "a folder is a file": folder_becomes_file,
    "a file is a folder": file_becomes_folder,
    "a link is a file": link_becomes_file,
    "code is cached": lambda root: (root / "__pycache__").mkdir(),
    "an added file is removed": lambda root: (root / "added.py").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_trial_does_to_its_copy_is_undone(tmp_path: Path, change: str) -> None:
    root = tmp_path / "project"
    (root / "data").mkdir(parents=True)
    (root / "main.py").write_text("x = 1\n")
    (root / "data/log.txt").write_text("first\n")
    (root / "empty").mkdir()
    with (root / "big.bin").open("wb") as big:
        big.truncate(5 << 20)
    project = Project(Program(str(root / "main.py")), root, root, added={"added.py": b"z = 3\n"})
    copy = project.copy_to(tmp_path / "copies")
    assert (copy.root / "big.bin").is_symlink()
    before, files = entries_of(copy.root), listing(copy.root)
    CHANGES[change](copy.root)
    assert listing(copy.root) != files
    project.restore(copy, before)
    assert listing(copy.root) == files
    assert (copy.root / "big.bin").is_symlink()
    assert listing(root) == {name: content for name, content in files.items() if name != "added.py"}


@pytest.mark.parametrize("below", ["", "project"])
def test_what_pip_put_into_any_folder_is_a_package(below: str, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "main.py").write_text("import fakelib\n")
    place = install_package(tmp_path / below, {"scale.py": SCALE}, name="plugins")
    (place / "own.py").write_text("x = 1\n")
    project = Project.of(Program(str(root / "main.py")))
    copy = project.copy_to(tmp_path / "copies")
    where = copy.root / "plugins" if below else place
    name = copy.name(str(where / "fakelib/scale.py"))
    assert name == "site-packages/fakelib/scale.py"
    assert (copy.relative(str(where / "fakelib/scale.py")), project.path(name)) == (None, place / "fakelib/scale.py")
    assert package_of(project, name) == ("fakelib", "1.2")
    assert project.name(str(place / "own.py")) == ("plugins/own.py" if below else None)
    assert project.name(str(root / "main.py")) == "main.py"


def test_a_program_of_an_installed_package_is_the_users(tmp_path: Path) -> None:
    file = install_package(tmp_path, {"train.py": "", "scale.py": SCALE}, name="plugins") / "fakelib" / "train.py"
    project = Project.of(Program(str(file)))
    assert [project.name(str(file)), project.name(str(file.with_name("scale.py")))] == ["train.py", "scale.py"]
