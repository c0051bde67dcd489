"""How a program ended, where that was not well: by its own exception, its own exit code, or a signal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dynadiag.explanation.advice_on_recompiles import advise_on
from dynadiag.explanation.cuda_graphs import OVERWRITTEN
from dynadiag.explanation.findings import Advice, Fact, Finding
from dynadiag.explanation.guard_text import described, what_changed
from dynadiag.explanation.identity import enclosing_function, identity, line_of
from dynadiag.explanation.recompile_case import RecompileCase, cases_of
from dynadiag.explanation.remedy import Remedy, advise
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.run_end import RunEnd
from dynadiag.explanation.run_records import RunRecords
from dynadiag.recording.code_origin import is_generated_file, is_user_file, short_place, user_frames
from dynadiag.recording.records import Frame, Recompile, Span, ended_by
from dynadiag.recording.torch_text.guards import refused_call
from dynadiag.recording.torch_text.reasons import is_double_backward, overwritten_output

_TORCHS = ("torch._dynamo.", "torch._inductor.")  # the modules of exceptions that a failed compile ends in
_OVERWRITTEN = "it reads an output of a CUDA graph that a later call overwrote"
_STANCE = "nothing that was compiled fits a call, and the stance is `fail_on_recompile`"
_INTERRUPT = "builtins.KeyboardInterrupt"

DOUBLE_BACKWARD: Remedy[RunEnd] = Remedy(
    "raised.double_backward",
    "Take both gradients inside of the compiled function: `torch.compile(torch.func.grad(torch.func.grad(fn)))`. Or "
    'compile it with `backend="eager"`, which leaves the backward to torch.',
)


def program_findings(run: RunRecords, before: Sequence[Finding]) -> tuple[Finding, ...]:
    """The exception that ended the program. Nothing where a failed compile raised it, which is told as that."""
    end = run.end
    if end is None or end.error in (None, _INTERRUPT) or _is_of_compile(end, run, before):
        return ()
    stack = [each for each in user_frames(end.stack) if is_user_file(each.file) and not is_generated_file(each.file)]
    function, span = (stack[-1].function, Span(stack[-1].file, stack[-1].line)) if stack else ("?", Span(None, None))
    made = overwritten_output(end.said)
    cause: str | None = None
    advice: tuple[Advice, ...] = ()
    if made is not None:
        cause, advice = "each call of a CUDA graph writes its outputs to the same memory", advise([OVERWRITTEN], made)
    elif is_double_backward(end.said, line_of(run.sources.get(span.file or "", ""), span.line or 0)):
        cause = "the backward of compiled code (AOTAutograd) is compiled, too, and has no backward of its own"
        advice = advise([DOUBLE_BACKWARD], end)
    elif changed := _refused(end):
        cause, advice = described(changed[0].changes[0]), advise_on(changed, run.run.torch)
    return (
        Finding(
            rule=Rule.FAILED_PROGRAM,
            id=None,
            identity=identity(Rule.FAILED_PROGRAM, None, function, (span,), run.sources, end.error or ""),
            severity="error",
            span=span,
            function=function,
            title=f"the program raised {end.name}: {_said(end) or end.said}".removesuffix(": "),
            cause=cause,
            places=(span,),
            advice=advice,
            evidence=() if made is None or made.file is None else (Fact("made", "by the compiled code at", made),),
            called=tuple(_without_head(each, run) for each in stack[:-1]),
        ),
    )


def _said(end: RunEnd) -> str | None:
    """What the exception means, where torch's own text says it in many words."""
    if overwritten_output(end.said) is not None:
        return _OVERWRITTEN
    changed = _refused(end)
    return f"{_STANCE}: {what_changed(changed[0].changes[0])}" if changed else None


def _refused(end: RunEnd) -> tuple[RecompileCase, ...]:
    """Why nothing that was compiled fits a call, where the program's stance is "fail_on_recompile"."""
    reasons = refused_call(end.message) or ()
    return cases_of(Recompile(0, "", None, None, "", reasons, limit_reached=False))


def _without_head(frame: Frame, run: RunRecords) -> Frame:
    """A frame without its line where that is the head of a compiled function: its code bears the line of the whole."""
    compiled = any((each.file, each.line) == (frame.file, frame.line) for each in run.compiles)
    function = enclosing_function(run.sources.get(frame.file), frame.line) if compiled else None
    body = getattr(function, "body", None)
    is_head = isinstance(body, list) and frame.line is not None and body[0].lineno > frame.line
    return replace(frame, line=None) if is_head else frame


def _is_of_compile(end: RunEnd, run: RunRecords, before: Sequence[Finding]) -> bool:
    """Whether it is what a failed compile ended in: an exception of torch's own, or the one that the compile raised."""
    if not any(item.severity == "error" for item in before):
        return False
    raised = {each.error for each in run.compiles if each.outcome == "error"} | {each.error for each in run.exports}
    return end.name.startswith(_TORCHS) or end.name.rpartition(".")[2] in raised


def bad_end(run: RunRecords, findings: Sequence[Finding]) -> str | None:
    """How the program ended, in a sentence. None where it ended well, or nobody saw it."""
    code, end = run.run.exit_code, run.end
    raised = next((item.span for item in findings if item.rule == Rule.FAILED_PROGRAM), None)
    if raised is not None and end is not None:
        at = f" at {short_place(raised.file, raised.line)}" if raised.file else ""
        told = f"The program raised {end.name}{at}: {_said(end) or end.first_line}".removesuffix(": ")
        return told if told.endswith((".", "!", "?", "…")) else f"{told}."
    if not code or run.run.is_foreign:
        return None
    if code < 0:
        return f"The program was {ended_by(-code)}."
    if end is not None and end.error == _INTERRUPT:
        return "The program was interrupted (KeyboardInterrupt)."
    if end is not None and end.error is None:
        return f"The program ended itself with exit code {code} (`sys.exit`)."
    return f"The program ended with exit code {code}."
