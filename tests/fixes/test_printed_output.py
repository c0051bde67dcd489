"""The part of a program's output that is compared."""

from __future__ import annotations

import pytest

from dynadiag.fixes.printed_output import (
    comparable,
    comparable_run,
    difference,
    last_exception,
    mask_unstable,
    spread_of,
)


def test_a_warning_of_a_moved_line_is_the_same() -> None:
    before = "/a/f.py:19: UserWarning: long\n  warnings.warn('long')\nnext\n"
    after = "/b/f.py:22: UserWarning: long\n  return out\nnext\n"
    assert comparable(before) == comparable(after)
    assert comparable(before) != comparable(before.replace("long", "short"))
    assert comparable(before) != comparable(before.replace("UserWarning", "RuntimeWarning"))


def test_what_torch_says_about_a_graph_break_is_not_the_programs_output() -> None:
    said = (
        "/x/site-packages/torch/_dynamo/variables/a.py:2415: UserWarning: Dynamo does not know how to trace it.\n"
        "If it is a Python builtin, please file an issue.\n"
        '  torch._dynamo.utils.warn_once(explanation + "\\n" + "\\n".join(hints))\n'
    )
    assert comparable(f"a\n{said}b\n") == "a\nb\n"
    assert comparable("a\nW1123 09:10:11.1 12 /x/site-packages/torch/_dynamo/a.py:9] [0/8] limit\nb\n") == "a\nb\n"


def test_the_order_of_lines_counts() -> None:
    assert difference("a\nb\n", "a\nb\n") is None
    assert "another order" in (difference("a\nb\n", "b\na\n") or "")
    assert "prints 'c'" in (difference("a\nb\n", "a\nb\nc\n") or "")


def test_what_differs_from_run_to_run_is_masked_and_nothing_else() -> None:
    masked = mask_unstable("loss 1.5 in 0.31 s\nend\n", "loss 1.5 in 0.29 s\nend\n")
    assert difference(masked, "loss 1.5 in 0.35 s\nend\n") is None
    assert difference(masked, "gain 1.5 in 0.35 s\nend\n") is not None
    assert difference(masked, "loss 1.5 in 0.35 s\nends\n") is not None


def test_a_warning_of_torchs_c_code_is_not_the_programs_output() -> None:
    own = '/p/a.py:3: UserWarning: mine\n  warnings.warn("mine")\n'
    torchs = (
        "/p/a.py:12: UserWarning: Converting a tensor with requires_grad=True to a scalar may do harm.\n"
        "Consider tensor.detach(). (Triggered internally at /pytorch/torch/csrc/a.cpp:834.)\n"
        "  scale = float(h.max())\n"
    )
    assert comparable(f"{own}{torchs}b\n") == comparable(f"{own}b\n") == "UserWarning: mine\nb\n"


def test_a_warning_that_is_shown_again_counts_once_in_a_run() -> None:
    first = "/u/f.py:3: UserWarning: small\n  warnings.warn('small')\n"
    assert comparable_run(f"{first}a\n{first}a\n", ["/u"]) == comparable_run(f"{first}a\na\n", ["/u"])
    assert comparable(f"{first}{first}") != comparable(first)


def test_the_place_of_a_difference_in_a_long_line_is_shown() -> None:
    told = difference("a" * 200 + "1\n", "a" * 200 + "2\n") or ""
    assert "a2'" in told
    assert "a1'" in told


def test_the_last_exception_is_named() -> None:
    shown = "Traceback:\n  File 1, line 1\nKeyError: 2\n\nDuring ...\n\nmy.own.TooLargeError\n"
    assert last_exception(shown) == "my.own.TooLargeError"
    assert last_exception("loss 1.0\nan Error: of nobody\n") is None


RUN = "step 3: loss 2.37, scale 65536, took 1.2 s\n"


@pytest.mark.parametrize("loss", ["2.369", "2.371", "2.3704"])
def test_a_number_may_differ_as_unchanged_runs_do(loss: str) -> None:
    spread = spread_of(RUN, RUN.replace("2.37", "2.368"))
    assert spread == pytest.approx(0.002 / 2.37)
    assert difference(RUN, RUN.replace("2.37", loss), spread) is None
    assert difference(RUN, RUN.replace("2.37", loss)) is not None


@pytest.mark.parametrize(
    ("was", "now"), [("2.37", "2.35"), ("65536", "65537"), ("step 3", "step 4"), ("loss", "gain"), ("2.37", "nan")]
)
def test_what_differs_by_more_is_no_rounding(was: str, now: str) -> None:
    spread = spread_of(RUN, RUN.replace("2.37", "2.371"))
    assert difference(RUN, RUN.replace(was, now), spread) is not None


def test_a_time_is_no_spread() -> None:
    assert spread_of(RUN, RUN.replace("1.2 s", "1.4 s")) == 0.0
    assert spread_of(RUN, RUN.replace("65536", "65537")) == 0.0
    assert difference(RUN, RUN.replace("2.37", "2.371"), 0.0) is not None


def test_the_lines_of_nodes_in_a_graph_that_is_printed_may_move() -> None:
    shown = "# File: /model/net.py:{} in forward, code: keep = lengths > 2\n"
    assert comparable(shown.format(10), ["/model"]) == comparable(shown.format(12), ["/model"])
    assert comparable("net.py:10 in forward\n") != comparable("net.py:12 in forward\n")
