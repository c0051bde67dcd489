"""The end of a test: what its recording has of it, and what the summary says."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dynadiag.testing.session import RECORDING, RecordedSession, _test_lines
from tests.check.build import a_measurement


class Recording:
    """Stands in for the recording of a test in which nothing was compiled."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def stop(self, failure: BaseException | None) -> None:
        self.calls.append(failure)

    def finish(self, exit_code: int) -> None:
        self.calls.append(exit_code)

    def remove(self) -> None:
        self.calls.append("removed")


class Item:
    nodeid = "test_a.py::test_a"

    def __init__(self) -> None:
        self.stash = pytest.Stash()


@pytest.mark.parametrize(
    ("failure", "exit_code"), [(None, 0), (pytest.skip.Exception("no GPU"), 0), (AssertionError("3 != 4"), 1)]
)
def test_a_recording_has_the_outcome_of_its_test(failure: BaseException | None, exit_code: int) -> None:
    item, recording = cast("Any", Item()), cast("Any", Recording())
    item.stash[RECORDING] = recording
    RecordedSession._finish(cast("Any", None), item, failure)
    assert recording.calls == [failure, exit_code, "removed"]
    assert RECORDING not in item.stash


def test_the_lines_of_a_test_account_for_all_its_recompiles() -> None:
    *_, last = _test_lines(a_measurement(recompiled="n", recompiles=3), "/")
    assert last == "    and 2 more recompiles of these causes"
    *_, last = _test_lines(a_measurement(recompiled="n"), "/")
    assert "recompile" in last
    assert "more" not in last
