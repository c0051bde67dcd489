from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dynadiag.bisection.trial_log import TrialLog
from dynadiag.minify.repro_trial_log import ReproTrialLog
from dynadiag.recording.reader import Recording
from dynadiag.trial.outcome import Outcome

PASSED, SLOW = Outcome(None, 1.0, facts={}), Outcome(None, 9.0, facts={})


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[TrialLog]:
    made = TrialLog(tmp_path / "search.dynadiag", "train.py", ["train.py"])
    yield made
    made.finish(0, force=True)


def test_trials_of_a_text_are_rows_of_the_search(tmp_path: Path) -> None:
    made = TrialLog(tmp_path / "search.dynadiag", "train.py", ["train.py"])
    of_text = ReproTrialLog(made, "import torch\n")
    of_text.add("plan", PASSED, "pass", "at eager")
    assert (of_text.count, made.count) == (1, 1)
    with Recording(made.finish(0, force=True)) as search:
        (trial,) = search.trials()
    assert "the repro: at eager" in trial.outcome
    resumed = TrialLog(tmp_path / "again.dynadiag", "train.py", ["train.py"], tmp_path / "search.dynadiag")
    other, same = ReproTrialLog(resumed, "import math\n"), ReproTrialLog(resumed, "import torch\n")
    assert not other.has_recorded("plan")
    assert other.next_recorded("plan") is None
    assert same.has_recorded("plan")
    assert same.next_recorded("plan") == PASSED
    resumed.discard()


def test_another_search_on_a_text_knows_each_outcome_once(rows: TrialLog) -> None:
    first = ReproTrialLog(rows, "import torch\n")
    first.add("plan", PASSED, "pass")
    assert first.next_recorded("plan") is None  # whoever asks again wants another trial
    second = first.for_next_search()
    assert second.has_recorded("plan")
    assert second.next_recorded("plan") == PASSED
    assert second.next_recorded("plan") is None
    second.add("plan", SLOW, "pass")
    assert second.for_next_search().next_recorded("plan") == SLOW
