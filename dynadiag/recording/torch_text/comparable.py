"""Reads printed guards in a form in which two runs can be compared: without addresses, folders, ids and numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Container
from typing import Any

from dynadiag.recording.records import Guard
from dynadiag.recording.torch_text.guards import guarded_value

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b")
_FOLDER = re.compile(r"(?:/[\w.+-]+)+/(?=[\w.+-]+)")
_OBJECT_ID = re.compile(r"(___check_(?:obj_id|type_id|fake_script_type)\(.*, )\d+\)")
_CHECKER = re.compile(r"(___check_(?:metadata|opaque_guard_fn)_)\d+_c[\d/]+")  # with its address and its compile
# torch numbers the globals that it installs: `__builtins_dict___1`, `__resume_at_30_2`, `__compiled_fn_4_<uuid>`.
_INSTALLED = re.compile(r"\b(__\w+?)_\d+(?:_[0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12})?(?=\W)")
# A global of another module is the module's attribute there: where a function stands is no difference.
_IMPORTED = re.compile(r"G\['__import_\w+'\]\.(\w+)")
_CODE = re.compile(r"(<code object \S+) at [^>]*>")  # with its address, file and line, which move
_HINT = re.compile(r" \(HINT: [^)]*\)$")  # torch adds it to some guards on a type, for the reader
_NAME = re.compile(
    r"\b[LG]\['\w+(?='\])"  # an argument, a variable of a closure or a global: where it is held is no difference
    r"|(?<=_modules\[')\w+(?='\])|(?<=_parameters\[')\w+(?='\])|(?<=_buffers\[')\w+(?='\])"
    r"|(?<=[\])\w]\.)(?<!\btorch\.)[A-Za-z_]\w*"  # an attribute; torch's own are dtypes and layouts
    r"|(?<=<class ')[\w.<>]+(?='>)|(?<=<code object )[^\s>]+"
)
THREADS, STATE, VALUE = "num_threads", "GLOBAL_STATE", "value"
# Guards that a builtin, a global function, class or module is the one that was traced, or is the same under two names,
# and that a method is the one of the class. They are left out, because how source is divided into functions is no
# difference. A value that is read from the class has a guard of its own.
_OF_CALLED_CODE = re.compile(
    r"___check_obj_id\((?:dict\()?G\['(?:\w+'\](?:\.__dict__\)\['\w+'\])?(?:\.\w+)*, \d+\), "
    r"type=<class '(?:code|module|function)'>"
    r"|__builtins_dict__\w+'\]\['\w+'\])"
    r"|___check_obj_id\(G\['(\w+)'\], \d+\), type=<class '(?:\w+\.)*\1'>"
    r"|G\['__import_\w+'\][\w.]* is G\['\w+'\](?:\.\w+)*$"
    r"|not ___dict_contains\('\w+', .+\.__dict__\)$"
)
_OF_TORCH = re.compile(r"G\['(?:torch|__import_torch\w*)'\]")  # a constant of torch's, such as a dtype
_SUBMODULE = re.compile(r"_modules\['\w+'\]")


def without_addresses(text: str) -> str:
    """Return a text without memory addresses and folders of paths."""
    return _FOLDER.sub("", _ADDRESS.sub("0x", text))


def checked(guard: Guard) -> str:
    """What a guard checks: a value, whatever torch's kind for ``True`` and ``False``, or else its kind."""
    return VALUE if guarded_value(guard.expression) is not None else guard.kind


def is_unreadable(value: object) -> bool:
    """Whether an option is what torch logs for a function or an object."""
    return value == "Value is not JSON serializable"


def canonical_guard(guard: Guard, state_names: Container[str] | None = None) -> tuple[str, str, str]:
    """What a guard is, for comparison. Of the global state only ``state_names`` count, all if there are none."""
    source, expression = (
        _IMPORTED.sub(r"G['\1']", _INSTALLED.sub(r"\1", text)) for text in (guard.source, guard.expression)
    )
    if guard.kind == STATE:
        state = {
            name: value
            for name, value in global_state(guard.expression).items()
            if name != THREADS and (state_names is None or name in state_names)
        }
        return guard.kind, source, json.dumps(state, sort_keys=True)
    check = checked(guard)
    return (
        check,
        "" if check == VALUE else source,  # the expression has it
        without_addresses(_CHECKER.sub(r"\1", _OBJECT_ID.sub(r"\1)", _CODE.sub(r"\1>", _HINT.sub("", expression))))),
    )


def global_state(expression: str) -> dict[str, Any]:
    """The state that torch prints as JSON after ``___checkglobal_state() against``."""
    try:
        state = json.loads(expression[expression.index("{") :])
    except ValueError:
        return {"expression": expression}
    return state if isinstance(state, dict) else {}


def skeleton(guard: Guard) -> tuple[str, list[str]]:
    """A guard with its names left out, and the names."""
    text = "\n".join(canonical_guard(guard))
    return _NAME.sub("?", text), _NAME.findall(text)


def is_on_called_code(guard: Guard) -> bool:
    """Whether a guard only says that a function, class or module is the one that was traced."""
    return _OF_CALLED_CODE.match(guard.expression) is not None


def is_on_constant(guard: Guard) -> bool:
    """Whether a guard is on a constant of torch's, such as a dtype."""
    return _OF_TORCH.match(guard.source) is not None


def module_of(guard: Guard) -> str | None:
    """Return the source of the submodule that what is guarded belongs to; None where it is of none."""
    ends = [match.end() for match in _SUBMODULE.finditer(guard.source)]
    return guard.source[: ends[-1]] if ends else None
