"""The remedies for graph breaks at what a program writes: `print`, `warnings.warn`, a logger.

The programs of the trials are in `tests/explanation/advice_programs.py`.
"""

from __future__ import annotations

import re

from dynadiag.explanation.blocks import call_at
from dynadiag.explanation.break_case import BreakCase, Condition, theirs, when
from dynadiag.explanation.remedy import Remedy, Trial

_REORDER = "torch._dynamo.config.reorderable_logging_functions"
_AFTERWARDS = "the call then comes after the graph and breaks nothing."
_LOST = "With `reorderable_logging_functions` torch loses what a function prints that it inlines."
_MOVED = frozenset({"str", "Tensor", "int", "float", "bool", "NoneType"})  # can_reorder_logs, variables/misc.py
_MOVED_AS_TEXT = _MOVED | {"Size", "tuple", "list", "type"}  # an f-string of such a value is a constant
_METHODS = "(?:debug|info|warning|error|critical|exception|log)"
_CALLED_METHOD = re.compile(rf"\.(?P<name>(?:\w+_)?{_METHODS}(?:_\w+)?)\(")  # in the user's source: `log.warning_once(`
_LOGGER = "GB0291"  # the number of torch's registry


def _prints(types: frozenset[str]) -> Condition:
    return lambda case: case.is_plain_print and set(case.facts.argument_types) <= types


def _is_moved(case: BreakCase) -> bool:
    """Whether torch moves a `print` as it is: it drops keywords until 2.13, and from 2.14 on refuses them and None.

    What it moves out of a function that it inlines is lost.
    """
    moves_none = (case.run.run.torch or "2.13").startswith(("2.11", "2.12", "2.13"))
    return _prints(_MOVED if moves_none else _MOVED - {"NoneType"})(case) and not (case.has_keywords or case.is_inlined)


def _is_moved_as_text(case: BreakCase) -> bool:
    return _prints(_MOVED_AS_TEXT)(case) and not case.is_inlined


def _has_a_category(case: BreakCase) -> bool:
    """Whether `warnings.warn` is called with more than a message, which torch cannot move behind the graph."""
    call = call_at(case.source, case.item.span)
    return case.has_keywords or (call is not None and len(call.args) > 1)


def _logger_method(case: BreakCase) -> str:
    """The method by torch's words, else by the call in the source."""
    return f"logging.Logger.{_method_name(case) or 'warning'}"


def _logger_like(case: BreakCase) -> str:
    return "" if _method_name(case) else ", for the method that is called here"


def _method_name(case: BreakCase) -> str | None:
    line = case.item.span.line
    text = ((case.source or "").split("\n")[line - 1 :] or [""])[0] if line else ""
    called = _CALLED_METHOD.search(text, case.item.span.column or 0)
    return case.facts.method or (called and called["name"])


OUTPUT: tuple[Remedy[BreakCase], ...] = (
    Remedy(
        "print.reorder",
        f"`{_REORDER}.add(print)`: {_AFTERWARDS}",
        when(_is_moved),
        trials=(Trial("prints_a_text"), Trial("prints_a_tensor"), Trial("prints_numbers", ("2.13",))),
    ),
    Remedy(
        "print.as_text",
        f'Print a text, such as `print(f"{{{{x.shape}}}}")`, and `{_REORDER}.add(print)`: {_AFTERWARDS} torch moves '
        "only texts, numbers and tensors, without keywords.",
        when(theirs, _is_moved_as_text, lambda case: not _is_moved(case)),
        trials=(Trial("prints_a_size"), Trial("prints_a_list"), Trial("prints_with_a_keyword")),
    ),
    Remedy(
        "print.afterwards",
        "Print after the compiled call, from what it returns.{plain}",
        when(
            theirs,
            lambda case: case.is_plain_print and not _is_moved_as_text(case),
            plain=lambda case: f" ({_LOST})" if case.is_inlined else "",
        ),
        trials=(Trial("prints_a_dict"), Trial("prints_in_a_helper")),
    ),
    Remedy(
        "warn.reorder",
        f"`{_REORDER}.add(warnings.warn)`: {_AFTERWARDS}",
        when(lambda case: case.warns and not (_has_a_category(case) or case.is_inlined)),
        trials=(Trial("warns"),),
    ),
    Remedy(
        "warn.ignore",
        "`torch._dynamo.config.ignore_logging_functions.add(warnings.warn)`: compiled code then leaves the call out. "
        "Or warn before or after the compiled call.",
        when(lambda case: case.warns and (_has_a_category(case) or case.is_inlined)),
        trials=(Trial("warns_with_a_keyword"), Trial("warns_in_a_helper"), Trial("warns_with_a_category")),
    ),
    Remedy(
        "log.ignore",
        "`torch._dynamo.config.ignore_logging_functions.add({method})`{like}: compiled code then leaves the call out.",
        when(
            lambda case: case.item.gb_id == _LOGGER and not case.is_condition, method=_logger_method, like=_logger_like
        ),
        trials=(Trial("logs"),),
    ),
    Remedy(
        "log.ask",
        "Ask the logger before the compiled call, and pass the answer in: compiled code can ask none.",
        when(theirs, lambda case: case.item.gb_id == _LOGGER and case.is_condition),
        trials=(Trial("asks_a_logger"),),
    ),
)
