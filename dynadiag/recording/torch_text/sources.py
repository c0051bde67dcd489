"""torch's notation of sources, the places in a program's data that guards look at: ``L['self']._modules['net'].k``.

``L`` are the locals of the compiled function, ``G`` its globals. It is the ``name`` of the classes in
torch/_dynamo/source.py, the same from torch 2.11 to 2.15.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

MODULE_OF_TORCH = "G['__import_torch_dot_"  # how a global of one of torch's own modules begins
ARGUMENTS = ("L['args']", "L['kwargs']")  # of a function that takes any, as wrappers do
_LOCAL = re.compile(r"L\['(?P<name>[^']+)'\]")
_GLOBAL = re.compile(r"G\['(?P<name>[^']+)'\]")
_VARIADIC = re.compile(r"L\['(args'\]\[(?P<index>\d+)|kwargs'\]\['(?P<key>\w+)')\](?P<rest>.*)", re.DOTALL)
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
_NO_WORD = re.compile(r"[^0-9a-zA-Z]+")
_GRAPH_INPUT = re.compile(r"[lLgG]_(\w+)_")
_ATTRIBUTES = re.compile(r"(?:^self)?_(?:modules|parameters|buffers)_")
_TERM = re.compile(r"[^\s()*+,-]+")
_SIZE = re.compile(r".*?\.(?:size|stride)\[\d+\]")
_IMPORTED = re.compile(r"G\['__import_(?P<name>\w+)'\]")  # a module whose function is traced
_BUILTIN = re.compile(r"G\['__builtins_dict__\w*'\]\['(?P<name>\w+)'\]")
_READ_AS_TENSOR = re.compile(r"___from_numpy\((?P<of>[^()]*)\)")
_KEYS = re.compile(r"list\(dict\.keys\((?P<of>[^()]*)\)\)")
_OF_CLASS = re.compile(
    r"(?:dict\(type\((?P<of>[^()]*)\)(?:\.__mro__\[\d+\])?\.__dict__\)"
    r"|type\((?P<from>[^()]*)\)(?:\.__mro__\[\d+\])?\.__dict__)\['(?P<name>\w+)'\]"
)
_ITEM_OF_MODULE = re.compile(r"\._modules\['(?P<index>\d+)'\]")  # of a list of modules
_PART_OF_MODULE = re.compile(r"\._(?:modules|parameters|buffers)\['(?P<name>\w+)'\]")
_ATTRIBUTE_BY_KEY = re.compile(r"\.__dict__\['(?P<name>\w+)'\]")  # of an object that the program changes
_ENVIRONMENT = re.compile(r"environ\._data\[b('\w+')\]")
_ON_STACK = re.compile(r"___stack\d+")  # what a function split by a break had computed, handed to the rest of it
_INPUT = re.compile(r"\b[lg]_\w+", re.IGNORECASE)  # of a graph: torch makes it of the source
_CELL = re.compile(r"\.__closure__\[(?:\d+\]\.cell_contents|'\w+'\])$")
_NUMBERED_CELL = re.compile(r"\.__closure__(\[\d+\]\.cell_contents)")
_NAMED_CELL = re.compile(r"\.__closure__\['(?P<name>\w+)'\]")
_VARIABLE = re.compile(r"HINT: guard on \"(?P<name>\w+)\"")  # from 2.13 on: _get_closure_var_hint, guards.py
_DEFAULT = re.compile(r"\.__(?:kw)?defaults__\[")
_LAST_STEP = re.compile(r"(\.(?P<attribute>\w+)(\(\))?|\['(?P<key>[^']*)'\]|\[[^\[\]]*\])$")
_HOOKS = re.compile(r"(?P<module>.+?)\._(?:forward|backward)_(?:pre_)?hooks(?:_with_kwargs|_always_called)?\b")
_ITEM = re.compile(r"\[(?:\d+|'\d+')\]")
# Ends of the source of a part of a tensor, and the part.
_WRAPPED = re.compile(r"L\['fn'\](?:\.__self__(?=\.))?")  # the callable, or the object of a method
_KEYWORD = re.compile(r"L\['partial'\]\.keywords\['(\w+)'\]")
_PARTS = (
    (re.compile(r"\.size\(\)\[(?P<index>\d+)\]$"), "size"),
    (re.compile(r"\.stride\(\)\[(?P<index>\d+)\]$"), "stride"),
    (re.compile(r"\.dim\(\)$"), "rank"),
    (re.compile(r"\.storage_offset\(\)$"), "offset"),
)
_ATTRIBUTE = re.compile(r"L\['(?P<name>\w+)'\]\.(?P<attribute>[A-Za-z_]\w*)")
_ARGUMENT = re.compile(r"L(?:\['\w+'\])?\['(?P<name>\w+)'\]")
_ITEM_OF = r"\[(?:\d+|'\w+')\]"
_SIZE_OF_ARGUMENT = re.compile(
    rf"L\['(?P<name>\w+)'\](?P<item>{_ITEM_OF})?(?P<path>(?:{_ITEM_OF}|\.[A-Za-z]\w*(?!\w|\())*)"
    r"\.size\(\)\[(?P<dimension>\d+)\]"
)
_COMPONENT = re.compile(r"\[(?:'(?:[^'\\]|\\.)*'|[^\[\]]*)\]|\.\w+(?:\(\))?|^[\w]+")


def source_text(source: str | None) -> str:
    """A source as the program writes it: ``L['x']`` is ``x``, a global is its name.

    >>> source_text("G['os'].environ._data[b'SCALE']")
    "os.environ['SCALE']"
    >>> source_text("G['__import_my_dot_hooks'].seen"), source_text("G['__import___main__'].seen")
    ('my.hooks.seen', 'seen')
    >>> source_text("G['__import_torch_dot_nn']"), source_text("G['__builtins_dict___1']['print']")
    ('torch.nn', 'print')
    >>> source_text("L['self']._modules['layers']._modules['0']._parameters['bias']")
    'self.layers[0].bias'
    >>> source_text("L['self'].__dict__['_modules']['fc']._parameters['bias']")
    'self.fc.bias'
    >>> source_text("L['fn'].__closure__['shift'].scale")
    'shift.scale'
    """
    text = "a value" if source is None else source
    if (cell := _last(_NAMED_CELL, text)) is not None:
        text = cell["name"] + text[cell.end() :]
    text = _IMPORTED.sub(lambda found: found["name"].replace("_dot_", "."), text)
    text = _BUILTIN.sub(r"\g<name>", text)
    text = _GLOBAL.sub(r"\g<name>", _LOCAL.sub(r"\g<name>", text.removeprefix("__main__.")))
    text = _ENVIRONMENT.sub(r"environ[\1]", text)
    text = _ON_STACK.sub("<value from before the break>", text)
    text = _READ_AS_TENSOR.sub(r"\g<of>", text.removesuffix(".__code__"))
    text = _KEYS.sub(r"list(\g<of>)", _OF_CLASS.sub(_class_attribute, text))
    text = _ITEM_OF_MODULE.sub(r"[\g<index>]", _ATTRIBUTE_BY_KEY.sub(r".\g<name>", text))
    return _PART_OF_MODULE.sub(r".\g<name>", text).removesuffix("._modules")


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last match: a pattern that begins with ``.*`` would take quadratic time where there is none."""
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


def _class_attribute(found: re.Match[str]) -> str:
    return f"type({found['of'] or found['from']}).{found['name']}"


def with_variable(source: str, comment: str) -> str:
    """A source in which a variable that a function closes over has its name, where torch's comment on a guard has it.

    >>> with_variable("L['f'].__closure__[1].cell_contents.k", '# x + c.k  # p.py:1 in f (HINT: guard on "c".k)')
    "L['f'].__closure__['c'].k"
    """
    named, cell = _VARIABLE.search(comment), _last(_NUMBERED_CELL, source)
    return f"{source[: cell.start(1)]}['{named['name']}']{source[cell.end(1) :]}" if named and cell else source


def input_names(placeholders: Iterable[str], sources: Iterable[str]) -> list[str]:
    """The inputs of a graph as the program writes them. One without a source among these keeps Dynamo's name.

    Printed graphs have the names in lower case.

    >>> input_names(["l_self_parameters_w_", "s0"], ["L['self']._parameters['w']"])
    ['self.w', 's0']
    """
    names = {_NO_WORD.sub("_", source).lower(): source_text(source) for source in sources}
    return [names.get(name.lower(), name) for name in placeholders]


def is_input_name(name: str) -> bool:
    """Whether it is Dynamo's name of an input of a graph, of a local or a global: ``l_x_``, ``G_net_parameters_w_``."""
    return _GRAPH_INPUT.fullmatch(name) is not None


def attribute_name(name: str) -> str:
    """Dynamo's name of an input as the user's attribute. Other names stay.

    >>> attribute_name("l_self_modules_0_parameters_weight_"), attribute_name("relu_1")
    ('0.weight', 'relu_1')
    """
    found = _GRAPH_INPUT.fullmatch(name)
    return _ATTRIBUTES.sub(".", found[1]).strip(".").removeprefix("self.") if found else name


def with_program_names(text: str, sources: Iterable[str]) -> str:
    """A text with the inputs of a graph as the program writes them.

    >>> with_program_names("l_y_ + l_other_", ["L['y']"])
    'y + l_other_'
    """
    inputs = list(dict.fromkeys(_INPUT.findall(text)))
    names = dict(zip(inputs, input_names(inputs, sources), strict=True))
    return _INPUT.sub(lambda found: names[found[0]], text)


def local_name(source: str | None) -> str | None:
    """The local name that a source begins with: ``x`` of ``L['x'].size()[0]``; ``None`` where it begins elsewhere."""
    found = _LOCAL.match(source or "")
    return found and found["name"]


def renamed_local(source: str, name: str) -> str:
    """A source that begins with another local name.

    >>> renamed_local("L['x'].k", "_0")
    "L['_0'].k"
    """
    return _LOCAL.sub(f"L['{name}']", source, count=1)


def as_called(text: str, name: str) -> str:
    """A source or a guard as a callable sees it that torch wrapped in a function of its own, where it is ``fn``.

    >>> as_called("L['fn'].k", "self"), as_called("L['fn'].keywords['n']", "partial")
    ("L['self'].k", "L['n']")
    >>> as_called("L['fn'].__self__.steps", "self")
    "L['self'].steps"
    """
    text = _WRAPPED.sub(f"L['{name}']", text)
    return _KEYWORD.sub(r"L['\1']", text) if name == "partial" else text


def is_local(source: str | None) -> bool:
    """Whether a source is a local itself, and nothing in it."""
    return _LOCAL.fullmatch(source or "") is not None


def is_on_stack(text: str) -> bool:
    """Whether a source or a condition is on what a function had computed before a break, and had no name for."""
    return _ON_STACK.search(text) is not None


def is_global(source: str | None) -> bool:
    """Whether a source begins with a global of the program."""
    return _GLOBAL.match(source or "") is not None


def base_of(source: str | None) -> str | None:
    """What kind of place a source is, a `GuardFailure.base`; None of an unknown notation.

    >>> [base_of(text) for text in ("L['x'][0]", "L['self'].k", "G['K']", "L['___stack0']", "G['f'].__defaults__[0]")]
    ['argument', 'attribute', 'global', 'before break', 'default']
    >>> base_of("list(dict.keys(L['axes']))[0]"), base_of("list(dict.keys(L['self'].axes))[0]")
    ('argument', 'attribute')
    """
    if not source:
        return None
    if is_on_stack(source):
        return "before break"
    if ".param_groups[" in source or ".state[" in source or ("list(dict.keys(" in source and ".state))[" in source):
        return "optimizer"
    if _CELL.search(source):
        return "closure"
    if _DEFAULT.search(source):
        return "default"
    if "._parameters['" in source:
        return "parameter"
    holder = _KEYS.sub(r"\g<of>", source)  # a key of a dict is where the dict is
    attribute = "." in _bare(holder)
    return "attribute" if attribute else "global" if is_global(holder) else "argument"


def _bare(source: str) -> str:
    """A source without its keys and indices."""
    return re.sub(r"\[.*?\]", "", source)


def holder_of(source: str | None) -> str | None:
    """What holds the last part of a source: ``L['self']`` of ``L['self'].k``, the function of a closure's variable.

    >>> holder_of("L['self'].k"), holder_of("G['h'].__closure__[0].cell_contents"), holder_of("L['x']")
    ("L['self']", "G['h']", None)
    """
    if not source or _LOCAL.fullmatch(source) or _GLOBAL.fullmatch(source):
        return None
    shorter = _CELL.sub("", source) if _CELL.search(source) else _LAST_STEP.sub("", source)
    return shorter if shorter != source else None


def last_name(source: str | None) -> str | None:
    """The attribute, key or local that a source ends with: ``lr`` of ``L['g']['lr']``, ``grad`` of ``L['p'].grad``."""
    found = _LAST_STEP.search(source or "")
    return found and (found["attribute"] or found["key"])


def numbered_items(source: str | None) -> str:
    """A source with one text for all indices, which the items of one container share."""
    return _ITEM.sub("[]", source or "")


def module_items(source: str) -> Iterator[tuple[str, str]]:
    """Return the lists of modules that a source passes, outermost first, each with the source of its item.

    >>> list(module_items("L['self']._modules['layers']._modules['0']._parameters['bias']"))
    [("L['self']._modules['layers']", "L['self']._modules['layers']._modules['0']")]
    """
    return ((source[: found.start()], source[: found.end()]) for found in _ITEM_OF_MODULE.finditer(source))


def hooked_module(source: str | None) -> str | None:
    """Return the module whose hooks a source is of.

    >>> hooked_module("L['self']._modules['linear']._forward_hooks[0]")
    "L['self']._modules['linear']"
    """
    match = _HOOKS.match(source or "")
    return match["module"] if match else None


def attribute_of(source: str | None) -> tuple[str, str] | None:
    """Return the local and its attribute where a source is no more than that.

    >>> attribute_of("L['self'].k"), attribute_of("L['self'].a.k")
    (('self', 'k'), None)
    """
    match = _ATTRIBUTE.fullmatch(source or "")
    return (match["name"], match["attribute"]) if match else None


def ends_in_attribute(source: str | None) -> bool:
    """Whether a source is an attribute of what a local leads to."""
    step = _LAST_STEP.search(source or "")
    return _LOCAL.match(source or "") is not None and step is not None and (step[0] == f".{step['attribute']}")


def argument_of(source: str | None) -> str | None:
    """Return the name of an argument where a source is one, also one of those that a function takes as ``**options``.

    >>> argument_of("L['n']"), argument_of("L['options']['n']"), argument_of("L['x'].n")
    ('n', 'n', None)
    """
    match = _ARGUMENT.fullmatch(source or "")
    return match["name"] if match else None


def size_of_argument(source: str | None) -> tuple[str, str, int] | None:
    """Return the argument that a size is of, the way from it to the tensor, and the dimension.

    What ``args`` and ``kwargs`` hold are arguments themselves.

    >>> size_of_argument("L['batch']['tokens'].size()[1]"), size_of_argument("L['kwargs']['x'].size()[0]")
    (('batch', "['tokens']", 1), ('x', '', 0))
    """
    if (match := _SIZE_OF_ARGUMENT.fullmatch(source or "")) is None:
        return None
    name, item, path, dimension = match["name"], match["item"] or "", match["path"], int(match["dimension"])
    if name == "args" and item:
        return f"args{item}", path, dimension
    return (item.strip("[']"), path, dimension) if name == "kwargs" and item else (name, f"{item}{path}", dimension)


def argument_steps(source: str, parameters: Sequence[str]) -> tuple[int | None, str, str] | None:
    """Return the position and the name of the argument that a source begins with, and the rest as a program writes it.

    ``parameters`` are the names of the function's arguments, which a wrapper has in ``args`` and ``kwargs``.

    >>> argument_steps("L['batch']['ids']", ["x", "batch"]), argument_steps("L['args'][0]", [])
    ((1, 'batch', "['ids']"), (0, '', ''))
    """
    if match := _VARIADIC.match(source):
        index = None if match["index"] is None else int(match["index"])
        return index, match["key"] or "", source_text(match["rest"])
    name = local_name(source)
    if name is None or name == "self" or name.startswith("___"):
        return None
    rest = source[len(f"L['{name}']") :]
    return parameters.index(name) if name in parameters else None, name, source_text(rest)


def source_components(source: str) -> tuple[str, ...]:
    """Split the source of a guard into its components. An empty source has none.

    >>> source_components("L['x'].size()[0]")
    ("L['x']", '.size()', '[0]')
    """
    found = _COMPONENT.findall(source)
    if "".join(found) != source:
        return (source,)
    if len(found) > 1 and found[0] in ("L", "G"):
        found[:2] = [found[0] + found[1]]
    return tuple(found)


def without_part(source: str | None) -> tuple[str | None, str | None, str | None]:
    """A source without the part of a tensor at its end, the part and its dimension.

    >>> without_part("L['x'].size()[1]"), without_part("L['x']")
    (("L['x']", 'size', '1'), ("L['x']", None, None))
    """
    for pattern, part in _PARTS:
        if match := pattern.search(source or ""):
            return (source or "")[: match.start()], part, match.groupdict().get("index")
    return source, None, None


def argument_description(source: str | None) -> str | None:
    """How a caller names an argument of a function that takes any (``*args, **kwargs``), as wrappers do."""
    match = _VARIADIC.match(source or "")
    if match is None:
        return None
    if match["key"] is not None:
        return f"the keyword argument `{match['key']}`" + (" (part of it)" if match["rest"] else "")
    index = int(match["index"][:9])
    which = f"{_ORDINALS[index]} positional argument" if index < len(_ORDINALS) else f"positional argument {index + 1}"
    return f"the {which} of the call" + (" (part of it)" if match["rest"] else "")


def sizes_in(expression: str) -> tuple[str, ...]:
    """The sizes (``L['x'].size()[0]``) and strides that an expression is over, in time that grows with its length only.

    >>> sizes_in("L['x'].stride()[0] != 2*L['x'].size()[1]")
    ("L['x'].size()[1]", "L['x'].stride()[0]")
    """
    terms = _TERM.findall(expression.replace(".size()[", ".size[").replace(".stride()[", ".stride["))
    found = {match[0] for term in terms if (match := _SIZE.match(term))}
    return tuple(sorted(size.replace(".size[", ".size()[").replace(".stride[", ".stride()[") for size in found))
