"""A trial's temporary folder, and the C++ headers that torch precompiled earlier."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from dynadiag.trial.sandbox import Sandboxes, default_inductor_cache


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def _headers(folder: Path) -> Path:
    return folder / default_inductor_cache().name / "precompiled_headers"


def test_the_folder_is_torchs_own(temporary: Path) -> None:
    from torch._inductor.codecache import _HEADER_DIR
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    assert default_inductor_cache() == Path(default_cache_dir())
    assert Path(_HEADER_DIR).name == _headers(temporary).name


def test_headers_that_are_there_are_found_by_every_trial(temporary: Path) -> None:
    there = _headers(temporary)
    there.mkdir(parents=True)
    (there / "a.h.gch").write_text("compiled")
    places = Sandboxes()
    with places.create() as place:
        assert (_headers(place.scratch) / "a.h.gch").read_text() == "compiled"
        assert (_headers(places.folder) / "a.h.gch").exists()
    assert not place.scratch.exists()
    places.remove()
    assert (there / "a.h.gch").read_text() == "compiled"


def test_without_any_the_trials_share_theirs_and_leave_nothing(temporary: Path) -> None:
    places = Sandboxes()
    with places.create() as place:
        (_headers(place.scratch) / "a.h.gch").write_text("compiled")
    with places.create() as place:
        assert (_headers(place.scratch) / "a.h.gch").exists()
    places.remove()
    assert not list(temporary.iterdir())


def test_own_headers_are_not_shared(temporary: Path) -> None:
    _headers(temporary).mkdir(parents=True)
    places = Sandboxes(own_headers=True)
    with places.create() as place:
        assert not _headers(place.scratch).exists()
    shutil.rmtree(places.folder)
