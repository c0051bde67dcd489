"""Triton's rung without a GPU: when it is tried, and when it says that it was not."""

from __future__ import annotations

from dynadiag.bisect.ladder import ladder
from dynadiag.bisect.triton import idle
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.signature import Signature


def _outcome(**facts: object) -> Outcome:
    return Outcome(None, 1.0, facts=facts)


def test_a_trial_without_a_launch_says_nothing_of_triton() -> None:
    assert idle(_outcome(backends=["inductor"], launches=["triton_poi_fused_0"])) is None
    assert "libraries only" in (idle(_outcome(backends=["inductor"], launches=[])) or "")
    assert "go to aot_eager" in (idle(_outcome(backends=["aot_eager"], launches=[])) or "")
    assert "nothing was compiled" in (idle(_outcome(backends=[], launches=[])) or "")
    assert idle(Outcome(Signature("exit", "1", "exit code 1"), 1.0, facts={})) is None, "a failure needs no launch"


def test_the_ladder_has_the_rung_only_where_it_is_asked_for() -> None:
    assert "triton" not in ladder("custom", None)
    assert ladder("inductor", ("uncompiled", "triton")) == ("uncompiled", "triton")
