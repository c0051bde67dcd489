"""The rules of `dynadiag check`, and which findings of some runs are new, over budget or gone by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Self

from dynadiag.check.baseline import Baseline, BaselineUpdate, KnownFinding, max_in_one_run, targets_that_ran
from dynadiag.check.configuration import Budgets, bytes_of, relative_seconds
from dynadiag.check.measurement import Measurement, Problem
from dynadiag.explanation.formatting import count, list_some
from dynadiag.explanation.rules import Rule
from dynadiag.recording.code_origin import user_span


class CheckRule(StrEnum):
    """A kind of problem. ``says`` is what it is, ``of`` are the rules of the findings that it is about.

    ``budget`` is the budget that takes the place of a baseline for such findings.
    """

    says: str
    of: tuple[Rule, ...]
    budget: str | None

    NEW_BREAK = "new-break", "A graph break that the baseline does not know", (Rule.BREAK,), "max_breaks"
    NEW_RECOMPILE = (
        "new-recompile",
        "A recompile that the baseline does not know",
        (Rule.RECOMPILE, Rule.RECOMPILE_LIMIT),
        "max_recompiles",
    )
    NEW_UNCOMPILED = "new-uncompiled", "A function that Dynamo leaves to Python", (Rule.UNCOMPILED,)
    NEW_CACHE_BYPASS = "new-cache-bypass", "A compile that a cache cannot keep", (Rule.CACHE_BYPASS,)
    NEW_WRONG_VALUE = "new-wrong-value", "A value of compiled code that is wrong", (Rule.WRONG_VALUE,)
    NEW_NOT_FINITE = "new-not-finite", "A value that is not finite", (Rule.NOT_FINITE,)
    NEW_LOW_PRECISION = "new-low-precision", "A value that loses precision", (Rule.LOW_PRECISION,)
    NEW_DIVERGENCE = "new-divergence", "Ranks of a job that do not do the same", (Rule.DIVERGENCE,)
    NEW_ASSUMED = "new-assumed", "What a draft of an export takes from its example", (Rule.ASSUMED,)
    COMPILED_LATE = "compiled-after-warm-up", "What is compiled after the warm-up"
    FAILED = "failed", "A program or a compile that fails", (Rule.FAILED_COMPILE, Rule.FAILED_PROGRAM)
    MAX_BREAKS = "max-breaks", "More graph breaks than the budget", (Rule.BREAK, Rule.FAILED_COMPILE)
    MAX_RECOMPILES = "max-recompiles", "More recompiles than the budget", (Rule.RECOMPILE, Rule.RECOMPILE_LIMIT)
    MAX_GRAPHS = "max-graphs", "More graphs than the budget"
    MAX_COMPILE_SECONDS = "max-compile-seconds", "More time compiling than the budget"
    MAX_MEMORY = "max-memory", "More memory than the budget"
    MAX_LAUNCHES = "max-launches", "More kernel calls than the budget"
    FALLBACK_KERNEL = "fallback-kernel", "An operator that Inductor leaves to ATen"
    CACHE_BYPASS = "cache-bypass", "More cache bypasses than the budget", (Rule.CACHE_BYPASS,)

    def __new__(cls, name: str, says: str = "", of: tuple[Rule, ...] = (), budget: str | None = None) -> Self:
        rule = str.__new__(cls, name)
        rule._value_, rule.says, rule.of, rule.budget = name, says, of, budget
        return rule

    @property
    def is_new(self) -> bool:
        """Whether the problem is a finding that the baseline does not have."""
        return self.startswith("new-")

    @classmethod
    def of_finding(cls, rule: str) -> Self:
        """Return the kind of problem of a finding with this rule: the first kind that lists the rule."""
        return next(each for each in cls if rule in each.of)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found. ``unknown`` has a sentence for each budget that could not be checked.

    ``gone`` are known findings that no run has any more; after an ``update``, those that it dropped. ``is_compared``:
    there was a baseline.
    """

    problems: tuple[Problem, ...]
    known: tuple[Problem, ...]
    gone: tuple[KnownFinding, ...]
    unknown: tuple[str, ...]
    runs: tuple[Measurement, ...]
    root: str
    update: BaselineUpdate | None = None
    is_compared: bool = True

    @property
    def ok(self) -> bool:
        """Whether nothing is new and nothing over budget."""
        return not self.problems

    @property
    def known_findings(self) -> int:
        """How many findings are known: one that a run has twice is one, as in the baseline."""
        return len({each.identity for each in self.known})


def check(
    runs: Sequence[Measurement],
    baseline: Baseline | None,
    budgets: Callable[[Measurement], Budgets],
    root: Path,
    clean: Iterable[str] = (),
) -> CheckResult:
    """Compare runs to a baseline and to the budgets of each. Without a baseline every finding is new, unless a budget
    says how many of its kind are allowed. ``clean`` are further targets, which ran and compiled nothing.
    """
    allowed = {run.target: budgets(run) for run in runs}
    new, known = _split(runs, baseline, allowed)
    over, unknown = list[Problem](), list[str]()
    for run in runs:
        for found in over_budget(run, allowed[run.target], baseline or Baseline()):
            (unknown if isinstance(found, str) else over).append(found)  # type: ignore[arg-type]
    failed = [_failed(run) for run in runs if run.failed]
    gone = tuple(_gone(runs, baseline, clean)) if baseline else ()
    problems, is_compared = (*failed, *new, *over), baseline is not None
    return CheckResult(problems, tuple(known), gone, tuple(unknown), tuple(runs), str(root), is_compared=is_compared)


def after_update(result: CheckResult, update: BaselineUpdate) -> CheckResult:
    """The result of a check that wrote the baseline."""
    return replace(result, gone=update.dropped, update=update)


def _split(
    runs: Sequence[Measurement], baseline: Baseline | None, allowed: dict[str, Budgets]
) -> tuple[list[Problem], list[Problem]]:
    """The findings that are new, and those that are known: each identity once, for all targets that have it."""
    counts = {each.identity: each.count for each in baseline.known} if baseline else {}
    found: dict[tuple[bool, str, int], list[tuple[str, Problem]]] = {}
    for run in runs:
        seen = Counter[str]()
        for each in run.occurrences:
            seen[each.identity] += 1
            is_known = seen[each.identity] <= counts.get(each.identity, 0)
            if baseline is None and _has_budget(each.rule, allowed[run.target]):
                is_known = True
            found.setdefault((is_known, each.identity, seen[each.identity]), []).append((run.target, each))
    new, known = list[Problem](), list[Problem]()
    for (is_known, _, _), same in found.items():
        (known if is_known else new).append(_problem([target for target, _ in same], same[0][1]))
    return new, known


def _has_budget(rule: str, budgets: Budgets) -> bool:
    budget = CheckRule.of_finding(rule).budget
    return budget is not None and getattr(budgets, budget) is not None


def _problem(targets: Sequence[str], item: Problem) -> Problem:
    return replace(item, rule=CheckRule.of_finding(item.rule), targets=tuple(dict.fromkeys(targets)))


def _budget_problem(
    run: Measurement,
    rule: CheckRule,
    text: str,
    file: str | None = None,
    line: int | None = None,
    function: str | None = None,
) -> Problem:
    place = (file, line, None, None, None, function)
    return Problem(rule, None, f"{rule} {run.target}", "error", *place, text, None, (), (run.target,), text)


def _failed(run: Measurement) -> Problem:
    code = run.exit_code or 0
    if not code:
        text = "the recording reached its size limit (--limit GB): what came later is not known"
        return _budget_problem(run, CheckRule.FAILED, text)
    how = f"signal {-code} ended it" if code < 0 else f"exit code {code}"
    return _budget_problem(run, CheckRule.FAILED, f"the program failed: {how}")


def over_budget(run: Measurement, budgets: Budgets, baseline: Baseline) -> Iterator[Problem | str]:
    """The budgets that a run exceeds, and a sentence for each that could not be checked."""
    # What was compiled after the program said that its warm-up was over, or after the calls that `--after` names.
    for named, each in run.late:
        text = f"{named} was compiled after the warm-up (compile {each.compile_id})"
        span = user_span(each)
        yield _budget_problem(run, CheckRule.COMPILED_LATE, text, span.file, span.line, each.function)
    if run.cold is not None:
        yield _budget_problem(run, CheckRule.COMPILED_LATE, run.cold)
    yield from _counts(run, budgets)
    yield from _compile_seconds(run, budgets, baseline)
    yield from _memory(run, budgets)
    yield from _launches(run, budgets)
    yield from _fallback_kernels(run, budgets)


def _launches(run: Measurement, budgets: Budgets) -> Iterator[Problem | str]:
    if budgets.max_launches is None:
        return
    if run.launches is None:
        yield _unknown(run, CheckRule.MAX_LAUNCHES, "the generated code was not recorded")
    elif run.launches > budgets.max_launches:
        text = f"{count(run.launches, 'kernel call')} in the generated code, {budgets.max_launches} allowed"
        yield _budget_problem(run, CheckRule.MAX_LAUNCHES, text)


def _fallback_kernels(run: Measurement, budgets: Budgets) -> Iterator[Problem]:
    if budgets.fallback_kernel is None or len(run.fallbacks) <= budgets.fallback_kernel:
        return
    first = run.fallbacks[0]
    named = list_some(list(dict.fromkeys(each.name for each in run.fallbacks)))
    text = f"{count(len(run.fallbacks), 'fallback kernel')}, {budgets.fallback_kernel} allowed: {named}"
    yield _budget_problem(run, CheckRule.FALLBACK_KERNEL, f"{text} ({first.reason})", first.file, first.line)


def _counts(run: Measurement, budgets: Budgets) -> Iterator[Problem]:
    bypasses = sum(each.rule == Rule.CACHE_BYPASS for each in run.occurrences)
    figures = (
        (CheckRule.MAX_BREAKS, "graph break", run.breaks, budgets.max_breaks),
        (CheckRule.MAX_RECOMPILES, "recompile", run.recompiles, budgets.max_recompiles),
        (CheckRule.MAX_GRAPHS, "graph", run.graphs, budgets.max_graphs),
        (CheckRule.CACHE_BYPASS, "cache bypass", bypasses, budgets.cache_bypass),
    )
    for rule, noun, number, limit in figures:
        if limit is not None and number > limit:
            at = next((each for each in run.occurrences if each.rule in rule.of), None)
            place = (at.file, at.line, at.function) if at else ()
            yield _budget_problem(run, rule, f"{count(number, noun)}, {limit} allowed", *place)


def _compile_seconds(run: Measurement, budgets: Budgets, baseline: Baseline) -> Iterator[Problem | str]:
    if budgets.max_compile_seconds is None:
        return
    share, known = relative_seconds(budgets.max_compile_seconds), baseline.compile_seconds.get(run.target)
    if run.compile_seconds is None:
        yield _unknown(run, CheckRule.MAX_COMPILE_SECONDS, "the times were not recorded")
    elif share is not None and known is None:
        yield _unknown(run, CheckRule.MAX_COMPILE_SECONDS, "the baseline has no time for it; --update writes it")
    else:
        limit = float(budgets.max_compile_seconds) if share is None else share * (known or 0.0)
        if run.compile_seconds > limit:
            of = f" ({budgets.max_compile_seconds} of the baseline's {known} s)" if share is not None else ""
            text = f"{run.compile_seconds:.2f} s of compiling, {limit:g} s allowed{of}"
            yield _budget_problem(run, CheckRule.MAX_COMPILE_SECONDS, text)


def _memory(run: Measurement, budgets: Budgets) -> Iterator[Problem | str]:
    if budgets.max_memory is None:
        return
    limit = bytes_of(budgets.max_memory)
    if run.memory is None:
        yield _unknown(run, CheckRule.MAX_MEMORY, "the peak of memory was not recorded")
    elif run.memory > limit:
        text = f"a peak of {run.memory / 1e6:,.0f} MB of memory, {limit / 1e6:,.0f} MB allowed"
        yield _budget_problem(run, CheckRule.MAX_MEMORY, text)


def _unknown(run: Measurement, rule: CheckRule, why: str) -> str:
    return f"{rule} of {run.target} is not known: {why}"


def _gone(runs: Sequence[Measurement], baseline: Baseline, clean: Iterable[str]) -> Iterator[KnownFinding]:
    """The known findings of these targets alone that no run has any more, or has less often."""
    ran = targets_that_ran(runs, clean)
    now = max_in_one_run(runs)
    for each in baseline.known:
        if each.targets and set(each.targets) <= ran and now.get(each.identity, 0) < each.count:
            yield each
