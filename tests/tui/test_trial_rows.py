"""The details of a trial, in words."""

from __future__ import annotations

import json

import pytest

from dynadiag.recording.records import Trial
from tui.search_summary import trial_lines, trial_row

SETTINGS = {"rung": "inductor", "caches": False, "record": ["call", "frame"], "switches": [], "task": None}
OUTCOME = {
    "status": "same",
    "label": "as written",
    "signature": {"type": "AssertionError", "message": "no"},
    "exit_code": 1,
    "points": [{"group": "frame", "key": None, "lines": [["prog.py", 7]]}, {"group": "call"}],
    "facts": {"torch": "2.13.0", "writes": [], "job": {"ranks": 2}},
    "tail": "Traceback",
}


def _details(candidate: str, outcome: object = OUTCOME) -> list[str]:
    return [item.text for item in trial_lines(Trial(0, 7, candidate, json.dumps(outcome), 0.5))]


def test_what_was_tried_and_what_came_of_it_are_told_in_words() -> None:
    texts = _details(f"fresh {json.dumps(SETTINGS)}")
    assert texts[texts.index("candidate") :] == [
        "candidate",
        "  in a fresh interpreter",
        "  rung  inductor",
        "  caches  no",
        "  record  call, frame",
        "",
        "outcome",
        "  exit code  1",
        "  points  group frame, lines prog.py, 7",
        "  points  group call",
        "  facts  torch 2.13.0, job ranks 2",
    ]


def test_a_candidate_without_settings_is_told_as_it_is() -> None:
    texts = _details("graph 0f61", {"status": "pass"})
    assert texts[-2:] == ["candidate", "  graph 0f61"]


@pytest.mark.parametrize(
    "outcome",
    [
        "killed",
        3,
        [1, {"a": [[[]]]}],
        json.loads('{"a":' * 400 + "1" + "}" * 400),
        json.loads("[" * 400 + "]" * 400),
        {"a": "one\ntwo"},
    ],
)
def test_a_strangers_outcome_is_shown_too(outcome: object) -> None:
    texts = _details("{", outcome)
    assert texts[texts.index("candidate") + 1] == "  {"
    assert len(texts) > texts.index("outcome") + 1


def test_whether_a_failure_is_that_of_the_first_trial_is_told_in_words() -> None:
    for status, words in (("same", "same failure"), ("different", "other failure"), ("pass", "pass")):
        item = Trial(0, 7, "{}", json.dumps({"status": status}), 0.5)
        assert trial_row(item).cells[2] == words
        assert f"  {words}, 0.5 s" in trial_lines(item)[0].text
