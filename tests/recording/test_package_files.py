"""Which files are of installed packages."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from dynadiag.recording.package_files import PackageFiles, installed_file, installed_path
from tests.fixes.library import SCALE, install_package


def test_metadata_lists_the_files_of_a_package_in_any_folder(tmp_path: Path) -> None:
    place = install_package(tmp_path, {"scale.py": SCALE}, name="plugins")
    own = place / "fakelib" / "own.py"
    own.write_text("x = 1\n")
    assert installed_path(str(place / "fakelib/scale.py")) == "fakelib/scale.py"
    assert installed_file(place / "fakelib/scale.py") == ("fakelib/scale.py", "fakelib", "1.2")
    assert installed_path(str(own)) is None


def test_the_files_of_an_editable_install_are_the_users(tmp_path: Path) -> None:
    place = install_package(tmp_path, {}, name="plugins")
    (place / "fakelib-1.2.dist-info/RECORD").write_text(
        "__editable__.fakelib-1.2.pth,,\nfakelib-1.2.dist-info/RECORD,,\n"
    )
    source = tmp_path / "checkout" / "fakelib" / "scale.py"
    source.parent.mkdir(parents=True)
    source.write_text(SCALE)
    assert installed_path(str(source)) is None


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_a_package_in_a_folder_of_packages_needs_no_metadata(tmp_path: Path, folder: str) -> None:
    file = tmp_path / folder / "fakelib" / "scale.py"
    file.parent.mkdir(parents=True)
    file.write_text(SCALE)
    assert installed_path(str(file)) == "fakelib/scale.py"
    assert installed_file(file) is None


@pytest.mark.parametrize(
    "file", ["<ipython-input-1-0a>", "<In[3]>", "<frozen runpy>", "<string>", "", "fakelib/scale.py"]
)
def test_what_is_no_file_is_of_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    monkeypatch.chdir(install_package(tmp_path, {"scale.py": SCALE}, name="plugins"))
    assert installed_path(file) is None


def test_a_module_of_a_zip_file_is_the_users(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        archive.writestr("fakelib/scale.py", SCALE)
        archive.writestr("fakelib-1.2.dist-info/RECORD", "fakelib/scale.py,,\n")
    assert installed_path(str(tmp_path / "code.zip/fakelib/scale.py")) is None


def test_a_recording_knows_what_the_paths_do_not_say() -> None:
    packages = PackageFiles({"/job/plugins/fakelib/scale.py": "fakelib/scale.py"})
    assert packages.inside("/job/plugins/fakelib/scale.py") == "fakelib/scale.py"
    assert packages.inside("/env/site-packages/six.py") == "six.py"
    assert packages.inside("/job/plugins/own.py") is packages.inside(None) is None
