"""Reduces the source of a program that fails in Dynamo itself, by trials of the whole program, and writes the repro."""

from __future__ import annotations

import ast
import platform
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from dynadiag.bisection.budget import SearchStoppedError
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.minify.job_forms import JobForm, forms_of_job
from dynadiag.minify.minify_result import Interrupted, MinifyResult
from dynadiag.minify.proof import HANG_LEAST
from dynadiag.minify.repro_header import comment
from dynadiag.minify.source_match import is_raised_by_program
from dynadiag.minify.source_program import ProgramSource, read_program
from dynadiag.minify.source_trials import FILE, OUTPUT_DIFFERS, UNCOMPILED, SourceTrials, source_trials
from dynadiag.recording.torch_text.failures import unwrapped_error
from dynadiag.trial.events import LaunchedJob
from dynadiag.trial.signature import Signature
from minifier.source import MergeError, SourceReduction, count_lines, count_tokens, reduce_source
from minifier.source.altered import enlarged, programs_without_line, with_backend
from minifier.source.assertions import (
    asserting_programs,
    output_asserting_program,
    printing_assertions,
    printing_program,
    with_plain_values,
)

ASSERTION = Signature("exception", "AssertionError", "", cause="AssertionError", rung="eager", frames=("program",))
_MAX_STATEMENTS = 4  # that are left out, one after the other
_MAX_FORMS = 6  # of a program without one statement


def reduce_program(
    search: TrialSearch, base: MinifyResult, expected: Signature, job: LaunchedJob | None = None
) -> MinifyResult:
    """Reduce the program's source. ``base`` has the rung and the failure, ``expected`` is that failure as forks show
    it. If the program launches a ``job``, the source is that of its ranks.

    The repro is in the result, not proved yet. Raises `Interrupted` with the best so far after Ctrl-C.
    """
    try:
        source = read_program(job.program if job else search.runner.program)
    except MergeError as error:
        return replace(base, verdict="no_source", notes=(str(error),))
    with source_trials(search, source.text, source.imports, expected, base.rung or "eager", source.files) as trials:
        forms = tuple(forms_of_job(job, expected.rank)) if job else (None,)
        return _reduce(trials, source, base, forms)


def _reduce(
    trials: SourceTrials, source: ProgramSource, base: MinifyResult, forms: Sequence[JobForm | None]
) -> MinifyResult:
    text = _failing_text(trials, source.text, forms)
    if text is None:
        return replace(base, verdict="source_passes", notes=tuple(trials.notes))
    alone = trials.form is None  # what a rank prints is not compared, nor observed
    if trials.expected is not None and trials.expected.kind == "exception" and alone:
        with suppress(SearchStoppedError):  # the whole program is a repro all the same
            look_for_next_failure(trials, text)
    whole = trials.file(source.text)
    before = count_lines(whole), count_tokens(whole)
    why = "it fails in Dynamo, before there is a graph: " if trials.rung == "eager" else ""
    trials.search.on_message(f"{why}reducing {before[0]} lines of its source")
    compared = trials.expected is not None and trials.expected.is_wrong_result
    own = alone and trials.own_words and trials.expected is not None and is_raised_by_program(trials.expected)
    reduced = _by_what_is_compared(trials, text) if own else None
    if reduced is None:
        reduced = _reduced(trials, text, thorough=not compared and not own)  # these are reduced again
        if compared:
            reduced = _with_assertion(trials, reduced) or _reduced(trials, reduced.text)
        elif own and not trials.stopped:
            trials.own_words = False  # the other comparisons of the program are gone by now
            reduced = _reduced(trials, reduced.text)
    if _takes_simpler_form(trials, reduced.text, forms):
        reduced = _reduced(trials, reduced.text)
    trials.use_kept_time()  # with a backend that compiles less the proof is as much shorter
    if not trials.stopped and alone and trials.fails(named := with_backend(reduced.text, trials.rung)):
        reduced = replace(reduced, text=named)  # it fails there already: a reader need not wait for the rest
    trials.notes += [f"it reads {name}, which has to be beside it" for name in source.files if name in reduced.text]
    small = trials.file(reduced.text)
    result = replace(
        base,
        level="source",
        text=header(base, trials.last_failure or base.failure, trials.form) + small,
        reduced=trials.last_failure or trials.expected,
        lines_before=before[0],
        lines_after=count_lines(small),
        tokens_before=before[1],
        tokens_after=count_tokens(small),
        minimal=reduced.minimal,
        cached=trials.cached,
        notes=tuple(trials.notes),
    )
    if trials.interrupted:
        raise Interrupted(result)
    return result


def _failing_text(trials: SourceTrials, text: str, forms: Sequence[JobForm | None]) -> str | None:
    """The program as one file, if that fails in the same way. If only the result of a call differs, it prints that
    result. Of a job, the first form is taken in which it fails.
    """
    for form in forms:
        trials.form = form
        if trials.first_failure(text) is not None:
            return text
    if trials.form is not None or trials.expected is None or not trials.expected.is_wrong_result:
        return None
    printing = printing_program(ast.parse(text))
    return printing if trials.first_failure(printing) is not None else None


def _takes_simpler_form(trials: SourceTrials, text: str, forms: Sequence[JobForm | None]) -> bool:
    """Try the simpler forms again, in which the whole program did not fail: what is left may need no other rank."""
    taken = trials.form
    for form in forms[: forms.index(taken)]:
        trials.form = form
        if form is not None and trials.fails(text):
            trials.notes = [note for note in trials.notes if form.description not in note]
            return True
    trials.form = taken
    return False


def _reduced(trials: SourceTrials, text: str, *, thorough: bool = True) -> SourceReduction:
    """The program reduced. If what is left only shows memory that nothing has set, each candidate is checked for it."""
    reduced = _reduced_once(trials, text, thorough=thorough)
    compared = trials.expected is not None and trials.expected.is_wrong_result and not trials.checks_memory
    if not compared or trials.stopped or not trials.prints_unset_memory(reduced.text):
        return reduced
    trials.checks_memory = True
    return _reduced_once(trials, text, thorough=thorough)


def _reduced_once(trials: SourceTrials, text: str, *, thorough: bool) -> SourceReduction:
    return reduce_source(
        text,
        trials.fails,
        observe=trials.observe,
        stop=lambda: trials.stopped,
        on_step=trials.note_step,
        on_fault=trials.note_fault,
        ahead=trials.run_ahead,
        width=trials.runner.jobs,
        thorough=thorough,
    )


def _by_what_is_compared(trials: SourceTrials, text: str) -> SourceReduction | None:
    """The program reduced by what its failing assertion compares, with the assertion written anew. None if no assertion
    compares what differs.
    """
    failed = trials.expected
    trials.expected = OUTPUT_DIFFERS
    printing = next(filter(trials.fails, printing_assertions(ast.parse(text))), None)
    if printing is not None:
        found = _with_assertion(trials, _reduced(trials, printing, thorough=False))
        if found is not None:
            return found
    trials.expected, trials.own_words, trials.in_values = failed, True, None
    return None


def _with_assertion(trials: SourceTrials, reduced: SourceReduction) -> SourceReduction | None:
    """The program with an assertion in place of the output that differs, reduced again. None if no assertion fails."""
    wrong, tree = trials.expected, ast.parse(reduced.text)
    trials.expected, trials.own_words = ASSERTION, False
    forms = [ast.parse(ast.unparse(form)) for form in with_plain_values(tree)]
    with trials.few_more():
        asserting = next(filter(trials.fails, _asserting_programs(trials, forms)), None)
    if asserting is not None:
        return _reduced(trials, asserting)
    trials.expected = wrong
    return None


def _asserting_programs(trials: SourceTrials, forms: Sequence[ast.Module]) -> Iterator[str]:
    """Programs that assert what they print, one value first, and the whole output last."""
    for form in forms:
        yield from asserting_programs(form, trials.observe(ast.unparse(form)).of(form))
    for form in (forms[0], forms[-1]):
        printed = trials.printed(ast.unparse(form), UNCOMPILED, "uncompiled") or ""
        yield output_asserting_program(form, printed)


def enlarge_hang(search: TrialSearch, result: MinifyResult) -> MinifyResult:
    """The repro of a hang that ended in time, with larger numbers: a reduction under a short limit made them small.

    The result has no other text if none makes it long enough.
    """
    assert result.reduced is not None
    try:
        source = read_program(search.runner.program)
    except MergeError:  # a job: the program starts its ranks
        return result
    with source_trials(
        search, result.text, source.imports, result.reduced, result.rung or "eager", source.files
    ) as trials:
        trials.limit_seconds(HANG_LEAST, most=HANG_LEAST)
        longer = next(filter(trials.fails, enlarged(result.text)), None)
        if longer is not None:
            text = header(result, result.reduced) + longer
            return replace(result, text=text, tokens_after=count_tokens(text), lines_after=count_lines(text))
        short = () if trials.stopped else (f"the repro takes less than {HANG_LEAST:.0f} s",)  # else it is not known
        return replace(result, notes=(*result.notes, *short))


def header(base: MinifyResult, failure: Signature | None, form: JobForm | None = None) -> str:
    """The comment at the top of the repro."""
    assert failure is not None
    error, whole = unwrapped_error(failure.type, failure.message)
    message = next((line for line in whole.splitlines() if line.strip()), "")
    where = f", in {failure.where}" if failure.where else ""
    compares = failure.type == "AssertionError" and is_raised_by_program(failure)
    kind = "wrong result" if compares else "crash" if failure.kind == "signal" else failure.kind.replace("_", " ")
    said = message if failure.kind in ("signal", "exit") else f"{error}: {message}" if message else error
    lines = [
        f"{kind} with backend {base.rung}{where}",
        f"the assertion fails compiled{': ' if message else ''}{message}" if compares else said,
        f"torch {base.torch}, Python {platform.python_version()}",
        *([form.description] if form else []),
        "called without torch.export it passes" if base.exports else "it passes uncompiled (TORCHDYNAMO_DISABLE=1)",
    ]
    return "".join(map(comment, lines))


def look_for_next_failure(trials: SourceTrials, text: str) -> None:
    """Run the program without the statement that fails, and without the one that fails then, until it passes or fails
    in another way: a function may fail again further down.

    Each program that counts passes uncompiled, as the whole program ``text`` does.
    """
    left_out: list[str] = []
    failure = trials.run(text, trials.compiled, "compiled")
    while trials.matches(failure, text):
        line = next((line for file, line in failure.lines if Path(file).name == FILE), None)
        if line is None or len(left_out) == _MAX_STATEMENTS:
            return
        forms = islice(programs_without_line(text, line, trials.observe(text)), _MAX_FORMS)
        passing = (form for form in forms if trials.run(form[1], UNCOMPILED, "uncompiled").passed)
        statement, text = next(passing, ("", ""))
        if not text:
            return
        left_out.append(f"`{statement}`")
        failure = trials.run(text, trials.compiled, "compiled")
    if failure.signature is not None and not failure.is_hang:  # the rest may well compile longer than what failed
        trials.search.note_other_failure(failure.signature, f"without {', '.join(left_out)}")
