"""Writes a reduced graph as a repro. The text is run in forks: it has to reproduce the failure and pass uncompiled."""

from __future__ import annotations

import copy
import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from dynadiag.minify.candidate_trials import CandidateTrials, CompileSettings
from dynadiag.minify.failure_match import reproduces
from dynadiag.minify.pattern_export import pattern_expression
from dynadiag.minify.repro_text import ReproSpec, call_sites, header
from dynadiag.minify.source_export import CannotExportError, SourceExporter
from dynadiag.minify.torch_settings import DEFINITION_STARTS, TorchSnapshot, settings_source
from dynadiag.recording.torch_text.operators import is_custom_operator
from dynadiag.torch_private import bisect as torch_private
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.signature import Signature
from minifier.emit import EmitError, write_program
from minifier.emit.inputs import input_expression
from minifier.previous_call import previous_inputs
from minifier.tensors import copy_values, leaves
from minifier.triton_launches import launched_kernel

_MAX_USER_LINES = 4  # lines of the user's program in the header; a reduced graph rarely comes from more


@dataclass(frozen=True, slots=True)
class WrittenRepro:
    """The text of a repro. ``missing`` names what it lacks; ``reproduced``: a trial of it reproduced the failure."""

    text: str
    missing: tuple[str, ...] = ()
    reproduced: bool = False


@dataclass(frozen=True, slots=True)
class WriterInput:
    """The result of the reduction, from which the repro is written.

    ``run_text`` runs a text at a rung, or as written. ``signature`` is the failure that the text has to reproduce,
    ``message`` the message of the program's failure.
    """

    trials: CandidateTrials
    snapshot: TorchSnapshot
    compile_settings: CompileSettings
    signature: Signature
    run_text: Callable[[str, str | None], Outcome]
    passing_rungs: tuple[str, ...] = ()
    message: str = ""


def write_repro(given: WriterInput, module: GraphModule, inputs: Sequence[Any]) -> WrittenRepro:
    """Write the simplest text that reproduces the failure. If none does, the simplest text, and what it lacks."""
    try:
        backend, preamble = _backend_and_preamble(given, module)
    except CannotExportError as error:
        return WrittenRepro("", (str(error),))
    shown = _repro_spec(given, module, inputs, backend)
    first: str | None = None
    for call in call_sites(shown, given.compile_settings):
        try:
            needs = "import copy\n" if "copy.deepcopy(" in call else ""
            program = write_program(module, inputs, call=call, preamble=needs + preamble)
        except EmitError as error:
            return WrittenRepro("", (str(error),))
        text = _imports_first(program)
        first = first or text
        failed = given.run_text(text, None).signature
        if reproduces(failed, given.signature) and given.run_text(text, "uncompiled").passed:
            if failed is not None and given.signature.kind == "exception":  # with the sizes of the repro
                shown = replace(shown, message=failed.message)
            return WrittenRepro(header(shown, _user_lines(module)) + text, reproduced=True)
    return WrittenRepro(header(shown, _user_lines(module)) + first if first else "")


def _user_lines(module: GraphModule) -> list[str]:
    """The lines of the user's program that the graph comes from, with their file names."""
    places = filter(None, (torch_private.user_line(node) for node in module.graph.nodes if node.op.startswith("call_")))
    found = [f"{Path(file).name}:{line}: {linecache.getline(file, line).strip()}" for file, line in places]
    return [f"from {text}" for text in list(dict.fromkeys(found))[:_MAX_USER_LINES]]


def _backend_and_preamble(given: WriterInput, module: GraphModule) -> tuple[str, str]:
    """(the backend as source, the settings and definitions that come before the function).

    Raises `CannotExportError`.
    """
    carrier, own = SourceExporter(given.snapshot.expression_of, pattern_expression), given.trials.backend
    backend = f'"{own}"' if isinstance(own, str) else carrier.expression(own)
    for kernel in _kernels(module):
        carrier.expression(kernel)
    preamble = settings_source(given.compile_settings.settings, carrier, _operators(module))
    if given.compile_settings.fallback_random:
        preamble += "\nimport torch._inductor.config\ntorch._inductor.config.fallback_random = True"
    return backend, preamble


def _operators(module: GraphModule) -> list[str]:
    """The custom operators in the graph, as ``namespace::op``."""
    found: dict[str, None] = {}
    for node in module.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        name = schema.name if schema is not None else getattr(node.target, "_qualified_op_name", "")
        if is_custom_operator(name.replace("::", ".")):
            found[name] = None
    return list(found)


def _kernels(module: GraphModule) -> list[Any]:
    """The user-defined Triton kernels that the graph launches."""
    return [kernel for node in module.graph.nodes if (kernel := launched_kernel(node)) is not None]


def _repro_spec(given: WriterInput, module: GraphModule, inputs: Sequence[Any], backend: str) -> ReproSpec:
    """Describe the repro. The graph is run once on copies, to see if it draws random numbers or changes its inputs."""
    output = module.graph.output_node().args[0]
    single = not isinstance(output, (tuple, list)) or len(output) == 1
    mine, state = copy_values(inputs), torch.get_rng_state()
    try:
        returned = copy.deepcopy(module)(*mine)
    except Exception:  # noqa: BLE001 - the failure may be that the function raises uncompiled
        random = mutates = has_nan = is_complex = False
    else:
        has_nan = any(map(_has_nan, leaves((returned, mine))))
        is_complex = any(isinstance(value, torch.Tensor) and value.is_complex() for value in leaves(returned))
        random = not torch.equal(state, torch.get_rng_state())
        mutates = any(_changed(a, b) for a, b in zip(inputs, mine, strict=True))
    finally:
        torch.set_rng_state(state)
    rung, backward = str(given.trials.plan.rung), given.trials.backward
    earlier = _previous_arguments(module, inputs) if given.compile_settings.previous_call else ""
    return ReproSpec(
        rung,
        backend,
        given.signature,
        tuple(inputs),
        single,
        random,
        mutates,
        backward,
        has_nan,
        given.passing_rungs,
        given.message,
        earlier,
        "abs().sum()" if is_complex else "sum()",
    )


def _previous_arguments(module: GraphModule, inputs: Sequence[Any]) -> str:
    """The arguments of the previous call, for which the code is compiled, as source."""
    return ", ".join(map(input_expression, previous_inputs(module, inputs)))


def _has_nan(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()) and value.isnan().any()


def _changed(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return False
    return one.shape != other.shape or not torch.allclose(one, other, 0, 0, equal_nan=True)


def _imports_first(text: str) -> str:
    """The same program with all imports before its function moved to the top, each once."""
    before, function, after = text.partition("\ndef f(")
    lines = before.splitlines()
    found = {line for line in lines if line.startswith("import ")}
    needed = (line for line in found if not (line.startswith("import torch.") and _imported_under_alias(line, found)))
    imports = sorted(needed, key=lambda line: ("torch" in line, line))
    rest = "\n".join(line for line in lines if not line.startswith("import ")).strip("\n")
    apart = ["", ""] if rest.startswith(DEFINITION_STARTS) else [""]
    return "\n".join([*imports, *([*apart, rest] if rest else []), "", function + after])


def _imported_under_alias(line: str, imports: set[str]) -> bool:
    """Whether another line imports the same module under another name: then this one is not needed."""
    return any(other.startswith(f"{line} as ") for other in imports)
