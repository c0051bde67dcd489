"""Find the line of a program that sets an option of torch's, calls a function or defines a name.

Only the syntax tree is read. Where several lines match, the last one is taken: it is the one that counts.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping

from dynadiag.explanation.identity import nodes_of
from dynadiag.recording.records import Span

# Methods of every `nn.Module`: to call one compiles nothing, and is not meant to.
_OF_EVERY_MODULE = frozenset(
    {"eval", "train", "to", "cuda", "cpu", "half", "float", "double", "bfloat16", "compile", "apply", "requires_grad_"}
    | {"parameters", "named_parameters", "buffers", "modules", "named_modules", "children", "get_submodule"}
    | {"state_dict", "load_state_dict", "zero_grad", "register_forward_hook", "register_forward_pre_hook"}
)
_STARTERS = frozenset({"Thread", "Timer", "submit", "map", "run_in_executor", "to_thread", "apply_async"})
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def option_span(sources: Mapping[str, str], options: Collection[str]) -> Span | None:
    """Return the place that sets one of these options: an assignment, a keyword, or the key of a dictionary.

    >>> option_span({"f.py": "import a\\na.config.triton.cudagraphs = True"}, ["triton.cudagraphs"])
    Span(file='f.py', line=2, column=None, end_line=None, end_column=None)
    """
    return _last(sources, lambda node: _sets_option(node, options))


def option_number(sources: Mapping[str, str], option: str) -> tuple[int, Span] | None:
    """Return the number that a program assigns to an option, and where.

    >>> option_number({"f.py": "a.config.recompile_limit = 8\\na.config.recompile_limit = 64"}, "recompile_limit")
    (64, Span(file='f.py', line=2, column=None, end_line=None, end_column=None))
    """
    found = None
    for file, nodes in _nodes(sources):
        lines = {
            node.lineno: node.value.value
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and _sets_option(node, (option,))
        }
        numbers = {line: number for line, number in lines.items() if isinstance(number, int)}
        if numbers:
            found = numbers[max(numbers)], Span(file, max(numbers))
    return found


def begins_thread(sources: Mapping[str, str], function: str) -> bool:
    """Whether a program gives a function of this name to what runs it in a thread.

    >>> begins_thread({"f.py": "threading.Thread(target=self.work).start()"}, "Worker.work")
    True
    """
    name = function.rpartition(".")[2]
    for call in (node for _, nodes in _nodes(sources) for node in nodes):
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in _STARTERS:
            given = [*call.args, *(each.value for each in call.keywords)]
            if any(ast.unparse(each).rpartition(".")[2] == name for each in given):
                return True
    return False


def method_of_compiled(sources: Mapping[str, str]) -> tuple[str, str, Span] | None:
    """Return the name of what `torch.compile` returned, and the method that is called on it, where it itself never is.

    >>> method_of_compiled({"f.py": "net = torch.compile(Net())\\nnet.eval()\\nnet.encode(x)"})
    ('net', 'encode', Span(file='f.py', line=3, column=None, end_line=None, end_column=None))
    """
    for file, nodes in _nodes(sources):
        made = [node for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
        compiled = {
            ast.unparse(target)
            for node in made
            if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "torch.compile"
            for target in node.targets
        }
        called = [node.func for node in nodes if isinstance(node, ast.Call)]
        compiled -= {ast.unparse(function) for function in called}
        for function in called:
            if isinstance(function, ast.Attribute) and function.attr not in _OF_EVERY_MODULE:
                name = ast.unparse(function.value)
                if name in compiled:
                    return name, function.attr, Span(file, function.lineno)
    return None


def call_span(sources: Mapping[str, str], functions: Collection[str], *, keyword: str | None = None) -> Span | None:
    """Return the place that calls one of these functions, by the last part of the name, or decorates with it.

    With ``keyword`` only calls that pass it count.
    """
    return _last(sources, lambda node: _calls(node, functions, keyword))


def definition_span(sources: Mapping[str, str], name: str) -> Span | None:
    """Return the place where a function, a class or a variable of this name is defined."""
    simple = name.rpartition(".")[2]
    return _last(sources, lambda node: _defines(node, simple))


def return_line(source: str, line: int) -> int | None:
    """Return the line of the only ``return`` of the function at a line; None if it has none, or several.

    >>> return_line("@mark\\ndef f(x):\\n    return x, 1", 1)
    3
    """
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = nodes_of(source, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in functions if line in (node.lineno, *(mark.lineno for mark in node.decorator_list))]
    returns = [each.lineno for node in found for each in _own_nodes(node) if isinstance(each, ast.Return)]
    return returns[0] if len(returns) == 1 else None


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, (*_DEFINITIONS, ast.Lambda)):
            yield node
            yield from _own_nodes(node)


def _nodes(sources: Mapping[str, str]) -> Iterator[tuple[str, list[ast.AST]]]:
    """Each file, with all its nodes; none where it cannot be parsed."""
    for file, text in sources.items():
        yield file, nodes_of(text, ast.AST)


def _last(sources: Mapping[str, str], line_of: Callable[[ast.AST], int | None]) -> Span | None:
    found = None
    for file, nodes in _nodes(sources):
        lines = [line for node in nodes if (line := line_of(node))]
        found = Span(file, max(lines)) if lines else found
    return found


def _sets_option(node: ast.AST, options: Collection[str]) -> int | None:
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(_is_option(ast.unparse(target), options) for target in targets if isinstance(target, ast.Attribute)):
            return node.lineno
    elif isinstance(node, ast.Dict):
        keys = [key for key in node.keys if isinstance(key, ast.Constant) and key.value in options]
        return keys[-1].lineno if keys else None
    elif isinstance(node, ast.Call):
        named = [word.value.lineno for word in node.keywords if word.arg in options]
        texts = [word.lineno for word in node.args if isinstance(word, ast.Constant) and word.value in options]
        return max([*named, *texts], default=None)
    return None


def _is_option(target: str, options: Collection[str]) -> bool:
    return any(target.endswith(f".{option}") for option in options)


def _calls(node: ast.AST, functions: Collection[str], keyword: str | None) -> int | None:
    if isinstance(node, _DEFINITIONS):
        marks = [mark for mark in node.decorator_list if _refers_to(mark, functions)]
        return marks[0].lineno if marks and keyword is None else None
    if isinstance(node, ast.Call) and _refers_to(node.func, functions):
        return node.lineno if keyword is None or any(word.arg == keyword for word in node.keywords) else None
    return None


def _refers_to(node: ast.expr, functions: Collection[str]) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
    return name in functions


def _defines(node: ast.AST, name: str) -> int | None:
    if isinstance(node, _DEFINITIONS):
        return node.lineno if node.name == name else None
    targets = _targets(node)
    return getattr(node, "lineno", None) if name in targets else None


def _targets(node: ast.AST) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return (target.id for target in targets if isinstance(target, ast.Name))
