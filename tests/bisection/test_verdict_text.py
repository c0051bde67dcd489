from __future__ import annotations

from dynadiag.bisection.verdict import Culprit, Verdict
from dynadiag.trial.signature import Signature


def test_culprits_of_one_name_are_counted_in_the_first_line() -> None:
    culprits = (Culprit("pattern", "swap", "0/0"), Culprit("pattern", "swap", "0/1"), Culprit("pattern", "fold", "0/0"))
    text = str(Verdict("found", {"inductor": "same"}, "inductor", culprits=culprits))
    assert text.splitlines()[0] == "found: fails first at rung inductor; at fault: pattern swap (2 times), pattern fold"


def test_a_rung_with_nothing_smaller_at_fault_says_so() -> None:
    text = str(Verdict("found", {"inductor": "same"}, "inductor"))
    assert text.splitlines()[0].endswith("at fault: nothing smaller than the rung")


def test_a_failure_without_words_shows_what_was_printed_last() -> None:
    failure = Signature("exit", "1", "exit code 1")
    text = str(Verdict("found", {}, "inductor", failure=failure, printed=("FAILED (failures=1)",)))
    assert "  printed last:\n    FAILED (failures=1)\n" in text


def test_torchs_advice_on_its_own_trace_is_left_out() -> None:
    advice = "Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace"
    failure = Signature("exception", "InductorError", f"AssertionError: no strides\n\n{advice}\n")
    text = str(Verdict("found", {}, "inductor", failure=failure))
    assert "    AssertionError: no strides\n" in text
    assert "VERBOSE" not in text


def test_the_error_of_a_compiler_is_shown_and_not_its_command() -> None:
    said = """CppCompileError: C++ compile error

Command:
g++ /tmp/kernel.cpp -D ONE -o /tmp/kernel.so

Output:
/tmp/kernel.cpp: In function 'void kernel(float*)':
/tmp/kernel.cpp:19:33: error: 'compile' was not declared in this scope
   19 |             auto tmp = compile error!;
      |                        ^~~~~~~
"""
    failure = Signature("exception", "torch._inductor.exc.InductorError", said)
    text = str(Verdict("found", {}, "inductor", failure=failure))
    assert "    error: 'compile' was not declared in this scope\n    auto tmp = compile error!;\n" in text
    assert "g++" not in text
    assert "(5 more lines in --json)" in text


def test_a_rung_that_was_not_run_is_not_listed() -> None:
    text = str(Verdict("found", {"eager": "passes", "aot_eager": "not_run", "inductor": "same"}, "inductor"))
    listed = text.partition("\nrungs:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in listed.splitlines()] == ["eager", "inductor"]
