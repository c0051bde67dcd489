"""torch's sentences on guards: each is printed by the installed torch, and read into the facts of the failure."""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dynadiag
from dynadiag.recording.torch_text.guards import completed, read_condition, read_failure
from tests.explanation.build import a_failure

x = torch.ones(4)
PACKAGE = Path(dynadiag.__file__).parent


class Reasons(logging.Handler):
    """Collects the texts of recompile reasons from torch's structured trace."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", {})
        if metadata.get("artifact", {}).get("name") == "recompile_reasons":
            payload: Any = getattr(record, "payload", "")
            self.texts.append(payload() if callable(payload) else payload)


@pytest.fixture
def reasons() -> Iterator[list[str]]:
    torch._dynamo.reset()
    logger, handler = logging.getLogger("torch.__trace"), Reasons()
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    yield handler.texts
    logger.removeHandler(handler)
    logger.setLevel(level)
    torch._dynamo.reset()


class Held:
    scale = 2


def with_attribute(compiled: Callable[..., Any]) -> None:
    compiled(x, Held())
    held = Held()
    held.scale = 3
    compiled(x, held)


def without_gradients(compiled: Callable[..., Any]) -> None:
    compiled(x)
    with torch.no_grad():
        compiled(x)


def calls(*each: tuple[Any, ...]) -> Callable[[Callable[..., Any]], None]:
    def run(compiled: Callable[..., Any]) -> None:
        for arguments in each:
            compiled(*arguments)

    return run


# A function, calls of which the second makes torch print its sentence, and the part, subject, index, was and now.
SENTENCES: dict[str, tuple[Callable[..., Any], Callable[..., None], tuple[str | None, ...]]] = {
    "a size": (lambda v: v * 2, calls((x,), (torch.ones(5),)), ("size", "v", "0", "4", "5")),
    "a rank": (lambda v: v * 2, calls((x,), (x[None],)), ("rank", "v", None, "1", "2")),
    "a dtype": (lambda v: v * 2, calls((x,), (x.double(),)), ("dtype", "v", None, "Float", "Double")),
    "a stride": (
        lambda v: v * 2,
        calls((torch.ones(3, 4),), (torch.ones(4, 3).t(),)),
        ("stride", "v", "0", "4", "1"),
    ),
    "gradients": (
        lambda v: v * 2,
        calls((x,), (torch.ones(4, requires_grad=True),)),
        ("requires_grad", "v", None, "False", "True"),
    ),
    "a number": (lambda v, n: v * n, calls((x, 2), (x, 3)), ("value", "n", None, "2", None)),
    "a length": (
        lambda v, items: v + len(items),
        calls((x, [1]), (x, [1, 2])),
        ("length", "items", None, "length 1", None),
    ),
    "None": (
        lambda v, o: v * 2 if o is None else v + o,
        calls((x, None), (x, x)),
        ("value", "o", None, "None", None),
    ),
    "a membership": (
        lambda v, s: v + 1 if "a" in s else v - 1,
        calls((x, {"b"}), (x, {"a"})),
        ("membership", "s", "'a'", "absent", "present"),
    ),
    "a mode": (lambda v: v * 2, without_gradients, ("state", None, "grad_mode", None, None)),
    "a range of sizes": (
        lambda v: v + 1 if v.shape[0] > 10 else v - 1,
        calls((x,), (torch.ones(5),), (torch.ones(40),)),
        ("shape", "v", "range", None, None),
    ),
}


@pytest.mark.parametrize("kind", SENTENCES)
def test_a_sentence_of_this_torch_is_read(kind: str, reasons: list[str]) -> None:
    function, run, facts = SENTENCES[kind]
    run(torch.compile(function, backend="eager"))
    text = reasons[-1] if not reasons[-1].startswith("[") else ast.literal_eval(reasons[-1])[0]
    (failure,) = read_failure(text, "0/0")
    subject = failure.subject and failure.subject.removeprefix("L['").removesuffix("']")
    assert (failure.part, subject, failure.index, failure.was, failure.now) == facts


def test_an_attribute_that_is_gone_is_no_device() -> None:
    failure = a_failure("L['cache'].device exists", source="L['cache'].device", was="present", now="gone")
    assert (failure.part, failure.subject) == ("presence", "L['cache'].device")


@pytest.mark.parametrize(
    ("text", "index", "terms"),
    [
        ("2 <= L['x'].size()[1]", "above one", ("L['x'].size()[1]",)),
        ("(L['x'].size()[1] % 8) == 0", "multiple", ("L['x'].size()[1]",)),
        ("(L['x'].size()[1] // 2) == 4", "number", ("L['x'].size()[1]",)),
        ("L['x'].size()[0] == L['y'].size()[0]", "together", ("L['x'].size()[0]", "L['y'].size()[0]")),
        ("L['s'] > 0.0", "range", ("L['s']",)),
    ],
)
def test_what_an_expression_demands(text: str, index: str, terms: tuple[str, ...]) -> None:
    failure = read_condition(text)
    assert (failure.part, failure.index, failure.terms) == ("shape", index, terms)


def test_a_failure_of_an_old_recording_has_its_facts_again() -> None:
    old = a_failure("g", source="L['x'].size()[0]", was="4", now="5")
    assert completed(old) == old
    assert (old.part, old.subject, old.index, old.base) == ("size", "L['x']", "0", "argument")


def test_no_module_on_recompiles_matches_sentences() -> None:
    """What torch wrote is read in `torch_text`; above it there are facts."""
    names = (
        "advice_on_recompiles",
        "state_remedies",
        "tensor_remedies",
        "value_remedies",
        "changes",
        "guard_text",
        "process_state",
        "rebinding",
        "recompile_case",
        "recompiles",
    )
    files = [PACKAGE / "explanation" / f"{name}.py" for name in names] + [PACKAGE / "diff/guard_sentences.py"]
    imports = {
        f"{file.name}: {alias.name}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert not [name for name in imports if name.endswith(": re")]
