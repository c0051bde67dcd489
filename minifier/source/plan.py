"""Which passes run, and in which order: statements first, then definitions, calls and objects, expressions last."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from minifier.source.observed import Observed
from minifier.source.passes import definitions, expressions, inlining, isolation, objects, statements, unrolling
from minifier.source.reduction import Candidates, Proposals, SourceReduction, count_tokens, measure, run_pass
from minifier.source.short_names import tidied
from minifier.source.trees import render

_ONCE: tuple[Proposals, ...] = (
    expressions.set_tensors,
    statements.drop_not_run,
    isolation.isolate_calls,
    definitions.drop_async,
    definitions.drop_annotations,
    inlining.inline_exec,
)
_COARSE: tuple[Proposals, ...] = (
    statements.drop_driver_statements,
    statements.drop_unused,
    expressions.seen_results,
    statements.drop_unused,
    statements.drop_statements,
    statements.drop_unused,
    statements.unwrap_compounds,
    definitions.drop_decorators,
    definitions.drop_parameters,
    objects.drop_fields,
    statements.roll_calls,
    definitions.bind_parameters,
    inlining.inline_calls,
    statements.drop_statements,
    inlining.inline_variables,
    statements.keep_value_only,
    statements.split_tuples,
    statements.fill_literals,
    expressions.values_of_text,
    statements.drop_unused,
    objects.collapse_classes,
    objects.methods_to_functions,
    definitions.parameters_to_attributes,
    objects.classes_to_functions,
    objects.callables_to_functions,
    objects.objects_to_arguments,
    objects.objects_to_values,
    objects.objects_to_variables,
    objects.attributes_to_variables,
    unrolling.unroll_generators,
    unrolling.unroll_comprehensions,
    unrolling.unroll_function_tools,
    unrolling.unwrap_single_items,
    statements.use_at_once,
    statements.unroll_loops,
    statements.loop_over_less,
    unrolling.drop_columns,
    statements.loop_over_numbers,
    statements.drop_unused,
)
_FINE: tuple[Proposals, ...] = (
    expressions.set_tensors,
    expressions.seen_values,
    expressions.drop_items,
    expressions.smaller_expressions,
    expressions.shorter_constants,
    statements.roll_calls,
    inlining.to_lambda,
    inlining.call_directly,
)
PASSES: tuple[Proposals, ...] = tuple(dict.fromkeys((*_ONCE, *_COARSE, *_FINE)))
_GROWTH = 25  # tokens by which a pass may make a program longer: later passes make it shorter again
_MAY_GROW: Mapping[Proposals, int] = {
    inlining.inline_calls: _GROWTH,
    inlining.inline_exec: 10_000,  # text has fewer tokens than the statements in it, but hides them
    unrolling.unroll_generators: _GROWTH,
    expressions.values_of_text: _GROWTH,
    objects.callables_to_functions: _GROWTH,
    objects.methods_to_functions: _GROWTH,
    definitions.parameters_to_attributes: _GROWTH,
    objects.objects_to_arguments: _GROWTH,
    objects.objects_to_variables: _GROWTH,
    statements.unroll_loops: _GROWTH,
}


def reduce_source(
    text: str,
    fails: Callable[[str], bool],
    *,
    observe: Callable[[str], Observed] = lambda _text: Observed(),
    stop: Callable[[], bool] = lambda: False,
    on_step: Callable[[str, int], None] = lambda _name, _tokens: None,
    on_fault: Callable[[str, Exception], None] = lambda _name, _error: None,
    ahead: Callable[[Sequence[str]], None] = lambda _texts: None,
    width: int = 1,
    thorough: bool = True,
) -> SourceReduction:
    """Reduce a program while ``fails`` holds; the program itself has to fail.

    ``observe`` runs a program and returns its observations (`observer`), ``stop`` ends the reduction with the best so
    far. ``on_fault`` gets the name of a pass that raised, with its exception: that pass is left out. ``ahead`` gets up
    to ``width`` programs that may be tried next, and may run them side by side. Without ``thorough`` the passes end
    early: the result is not minimal, for it will be reduced again in another form.
    """
    candidates = Candidates(render(ast.parse(text)), fails, observe, stop, on_step, on_fault, ahead, width)
    _round(candidates, _ONCE, grow=True)
    best = candidates.text
    while not stop():
        _coarse(candidates)
        _round(candidates, _FINE, grow=True)
        if not thorough:
            break
        if measure(candidates.text) >= measure(best):  # what grew has led to nothing
            candidates.text = best
            candidates.thorough = True
            if not _round(candidates, PASSES):
                break
            candidates.thorough = False
        best = candidates.text
    minimal = thorough and not stop()
    candidates.text = min(best, candidates.text, key=measure)
    next((text for text in tidied(candidates.text) if candidates.replace(text)), None)
    return SourceReduction(candidates.text, minimal)


def _coarse(candidates: Candidates) -> None:
    """Run the coarse passes again as long as they take a tenth of the program."""
    while True:
        before = count_tokens(candidates.text)
        _round(candidates, _COARSE, grow=True)
        if count_tokens(candidates.text) > 0.9 * before:
            break


def _round(candidates: Candidates, passes: Sequence[Proposals], *, grow: bool = False) -> bool:
    found = False
    for proposals in passes:
        tokens = _MAY_GROW.get(proposals, 0) if grow else 0
        found = run_pass(candidates, proposals.__name__, proposals, may_grow=tokens) or found
    return found
