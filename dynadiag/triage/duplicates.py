"""The link to a search for issues of the same failure."""

from __future__ import annotations

import ast
import builtins
import re
import urllib.parse
from collections.abc import Iterator

from dynadiag.explanation.formatting import first_line
from dynadiag.triage.case import (
    TriagedCase,
    error_of,
    failure_of,
    has_proved_repro,
    operator_name,
    parts_of_torch,
    raises_itself,
    rung_of,
    without_comments,
)
from dynadiag.triage.title import operations_of
from dynadiag.trial.outcome import NOT_RAISED

_TARGET = "target: "  # Inductor's line on the operator that it lowers
# What of a message is of one program: what is quoted or in brackets, paths, numbers, and what follows a colon. A word
# with an apostrophe is two for GitHub.
_MESSAGE_WORDS = re.compile(
    r"""\u2018[^\u2019]*\u2019|(?<!\w)'[^']*'(?!\w)|\w*'\w+|"[^"]*"|`[^`]*`|\[[^\]]*\]|\S*[\d/]\S*|:\s.*"""
)
_MAX_SEARCHED = 8  # words of a message: GitHub looks for issues that have all of them
_FEW = 3  # of a message, which many issues have: the name of the operator tells them apart
_SEARCHED_WORD = re.compile(r"_*[A-Za-z](?:[\w.]*\w)?")
# Calls that any repro may have.
_SAYS_NOTHING = frozenset(("__init__", "__call__", "compile", "tolist", "item", "assert_close", "equal"))
_SAYS_LITTLE = frozenset(("ones", "zeros", "full", "tensor", "arange", "randn"))  # inputs are made so
_FUNCTIONS = (ast.FunctionDef, ast.Lambda)
_REPORTED_AS = {"timeout": "hang", "SIGSEGV": "segfault"}  # a word of five of eight titles of such issues
_SEARCH = "https://github.com/pytorch/pytorch/issues?q="
# Each of 13 issues on wrong results that were read has one of these; two have "wrong result" in the title.
_LABELS = 'label:"oncall: pt2","module: {}"'
_MODULES = {  # of torch's labels, by rung; Inductor's at those that are not here
    "eager": "dynamo",
    "aot_eager": "pt2-dispatcher",
    "aot_eager_decomp_partition": "pt2-dispatcher",
}
_NAMED_ERROR = re.compile(r"\w(Error|Exception)\b")
_PLAIN_WORD = re.compile("[A-Za-z]+_?")


def search_link(case: TriagedCase) -> Iterator[str]:
    """A search for issues of the same failure: by its error, or the words of its message where its type says little,
    the operator or the function that is called, and the file of torch.

    Reports of wrong results have no words in common (wrong, incorrect, mismatch, inconsistent, differs), but labels.
    There an operator whose name is a plain word, such as `sum`, must be in the title: it is in most texts.
    """
    failure = failure_of(case)
    if failure is None or case.redacted:
        return
    type_, message = error_of(failure, case)
    of_compiler = type_ == "CppCompileError"  # of which a kernel's name says nothing
    vague = hasattr(builtins, type_) or type_ == "Unsupported" or failure.kind in ("exit", "signal") or of_compiler
    message = first_line(message).removeprefix("error: ")
    vague = vague and not message.startswith(_TARGET)  # an assertion without words
    names = _names_at_fault(case)
    if vague and message and failure.where and {"pass", "pattern"} & {part.kind for part in parts_of_torch(case)}:
        names = []  # who met an error may not know the name of a pass
    # Type and message of what the program raises itself are its own, and searched for only where there is no name. So
    # are the words with which it exits, unless they name an error.
    raised = raises_itself(failure) or (failure.kind == "exit" and not _NAMED_ERROR.search(message))
    own = raised and bool(names or _called_methods(case))
    missing = message.partition(NOT_RAISED)[2] if type_ == "wrong result" else ""
    searched = missing or (message if vague and not own else "")
    said = _MESSAGE_WORDS.sub(" ", searched).split()[:_MAX_SEARCHED]
    names = [] if of_compiler or (missing and len(said) > _FEW) else names or ([] if said else _called_methods(case))
    file = (failure.where or "").partition(":")[0].rpartition("/")[2].replace("__init__.py", "")
    kind = "wrong result" if own or failure.kind == "nan" else _REPORTED_AS.get(type_, type_)
    first = ["is:issue"]
    if kind == "wrong result" and names and not said:
        words = names[:1]
        first += [
            _LABELS.format(_MODULES.get(rung_of(case) or "", "inductor")),
            *(["in:title"] * (_PLAIN_WORD.fullmatch(names[0]) is not None)),
        ]
    else:
        words = [*(said or [kind] * (failure.kind != "exit")), *names[:1], file, "torch.compile"]
    plain = dict.fromkeys(word for text in words for word in _SEARCHED_WORD.findall(text))
    query = urllib.parse.quote_plus(" ".join([*first, *plain]))
    yield f"Search for duplicates: <{_SEARCH}{query}>"


def _names_at_fault(case: TriagedCase) -> list[str]:
    """The operators and passes at fault. A custom operator is the program's, a fusion or a kernel may have several, and
    a node that no line of the program names may be one of a decomposition (`amax` of a softmax) or a constant.
    """
    text = without_comments(case.repro if has_proved_repro(case) else case.program)
    parts = [part for part in parts_of_torch(case) if part.kind not in ("operator", "fusion") and "+" not in part.name]
    named = [(part, operator_name(part.name)) for part in parts]
    named = [(part, name) for part, name in named if not name.startswith("_")]
    found = [name for part, name in named if part.kind != "lowering" or "." in part.name or name in text]
    return found if len({name for _, name in named}) == 1 else []  # of several, none may be what others met


def _called_methods(case: TriagedCase) -> list[str]:
    """Special methods of a proved repro's classes and what of torch decorates its functions, then the functions and
    methods that it calls or compiles: those in its functions first, and of these torch's. Operators of Python (`+`) and
    what makes inputs count in its functions alone, where there is nothing else.
    """
    repro = case.repro if has_proved_repro(case) else ""
    tree = ast.parse(repro)
    inside = {
        id(node) for function in ast.walk(tree) if isinstance(function, _FUNCTIONS) for node in ast.walk(function)
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = [
        f
        for call in calls
        for f in (call.func, *call.args)
        if isinstance(f, ast.Attribute) and (not f.attr.startswith("_") or f.attr.startswith("__"))
    ]
    called.sort(key=lambda f: (id(f) not in inside, not ast.unparse(f).startswith("torch."), f.lineno, f.col_offset))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    methods = [name for name in [*(node.name for node in functions), *(f.attr for f in called)] if "__" in name]
    decorators = [ast.unparse(each).partition("(")[0] for node in functions for each in node.decorator_list]
    methods += [name.rpartition(".")[2] for name in decorators if name.startswith("torch.")]
    names = [name for name in [*methods, *(f.attr for f in called)] if name not in _SAYS_NOTHING]
    made = [f.attr for f in called if f.attr in _SAYS_LITTLE and id(f) in inside]
    operators = [name for name in operations_of(repro) if "." not in name]
    of_python = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and hasattr(builtins, node.id)]
    return [name for name in names if name not in _SAYS_LITTLE] or made or operators or of_python
