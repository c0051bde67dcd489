"""Parse a module of the C++ wrapper (``cpp_wrapper``) into the same form as `module_parser`.

Its kernels are C++ functions, ``extern "C" void NAME(...)``. The function `inductor_entry_impl` calls them with
``X.data_ptr()``, calls libraries as ``aoti_torch_cpu_mm_out(OUT, A, B)``, and allocates buffers with
``aoti_torch_empty_strided``. On a GPU the kernels are Triton's. Their sources come first in the text, from the module
that autotuned them, and each is launched as ``call_NAME(X, Y, ..., DEVICE, STREAM)``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynadiag.kernels.graph_parser import split_arguments, split_lines
from dynadiag.kernels.module_parser import (
    Buffer,
    CommentReader,
    KernelDefinition,
    ModuleCall,
    ParsedModule,
    parse_module,
    split_parameters,
)

_SOURCE = "cpp_wrapper_src = ("
_EXAMPLE_INPUTS = "\ndef get_args("  # makes example inputs, whose sizes are those of the compile
_ENTRY = "void inductor_entry_impl("
_KERNEL = re.compile(r"^extern \"C\"\s+void\s+(\w+)\(")
_INPUT = re.compile(r"^\s*auto (\w+) = std::move\(inputs\[\d+\]\);")
_SIZES = re.compile(r"^\s*static constexpr int64_t (int_array_\d+)\[\] = \{([^}]*)\};")
_ALLOCATED = re.compile(r"aoti_torch_empty_strided\w*\(\d+, (\w+), \w+, cached_torch_dtype_(\w+), .*&(\w+)_handle\)\);")
_ASSERTED = re.compile(r"^\s*assert_size_stride\((\w+), \{([^}]*)\}")
_REUSED = re.compile(r"^\s*auto (\w+) = std::move\((\w+)\);\s+// reuse")
_LIBRARY = re.compile(r"aoti_torch_(?:cpu|cuda|proxy_executor|xpu)_?(\w+?)(_out)?\((.*)\)\);")
_HANDLE = re.compile(r"&(\w+)_handle")  # an output argument
_CALLED = re.compile(r"^\s*(\w+)\((.*)\);")
_POINTER = re.compile(r"\((\w+)\.data_ptr\(\)\)")
_RETURNED = re.compile(r"^\s*output_handles\[\d+\] = (\w+)\.release\(\);")


def is_cpp_wrapper(text: str) -> bool:
    """Whether a generated module is one of the C++ wrapper."""
    return _ENTRY in text


def parse_code(text: str) -> ParsedModule:
    """Parse a generated module, of the C++ wrapper or of Python."""
    return parse_cpp_wrapper(text) if is_cpp_wrapper(text) else parse_module(text)


def parse_cpp_wrapper(text: str) -> ParsedModule:
    """Parse the kernels, calls and buffers of a C++ wrapper. Unknown text is left out."""
    lines = split_lines(text)
    module = ParsedModule(selects_gpu="AOTICudaGuard" in text)
    module.definitions.update(parse_module(text.partition(_SOURCE)[0]).definitions)
    for place, line in enumerate(lines):
        if found := _KERNEL.match(line):
            _add_definition(module, lines, place, found[1])
    begin = next((place for place, line in enumerate(lines) if line.startswith(_ENTRY)), len(lines))
    end = next((place for place in range(begin, len(lines)) if lines[place].startswith("} //")), len(lines))
    _EntryReader(module).read(lines[:end], begin)
    for name, buffer in parse_module(text.rpartition(_EXAMPLE_INPUTS)[2]).buffers.items():
        module.buffers.setdefault(name, buffer)
    return module


def _add_definition(module: ParsedModule, lines: Sequence[str], place: int, name: str) -> None:
    """Add a definition with the include above it. A declaration ends in a semicolon and is left out."""
    head = next((n for n in range(place, len(lines)) if lines[n].rstrip().endswith((")", ";", "{"))), place)
    if not lines[head].rstrip().endswith((")", "{")):
        return
    last = next((n for n in range(head, len(lines)) if lines[n].startswith("}")), len(lines) - 1)
    first = place - 1 if place and lines[place - 1].startswith("#include") else place
    source = "\n".join(lines[first : last + 1]) + "\n"
    declared = source.partition("(")[2].partition(")")[0]
    lines_of = (place + 1, first + 1, last + 1)
    module.definitions[name] = KernelDefinition(name, "cpp", *lines_of, source, split_parameters(declared), (), None)


class _EntryReader:
    """Parses the function that calls the kernels."""

    def __init__(self, module: ParsedModule) -> None:
        self._module = module
        self._comments = CommentReader()
        self._sizes: dict[str, tuple[str, ...]] = {}

    def read(self, lines: Sequence[str], begin: int) -> None:
        returned: list[str | None] = []
        inputs: list[str] = []
        for number, line in enumerate(lines[begin:], begin + 1):
            if self._comments.feed(line.replace("//", "#", 1) if line.lstrip().startswith("//") else line, number):
                continue
            if found := _RETURNED.match(line):
                returned.append(found[1])
            elif found := _INPUT.match(line):
                inputs.append(found[1])
            elif not self._read_buffer(line):
                self._read_call(line, number)
        self._module.returns[""] = tuple(returned)
        # The stage of the graph, from the names that AOTAutograd gives to its inputs. The C++ text does not say it.
        names = {one.rpartition("_")[0] for one in inputs}
        self._module.stage = "backward" if "tangents" in names else "forward" if "primals" in names else "inference"

    def _read_buffer(self, line: str) -> bool:
        buffers = self._module.buffers
        if found := _SIZES.match(line):
            self._sizes[found[1]] = _split_sizes(found[2])
        elif found := _ALLOCATED.search(line):
            buffers[found[3]] = Buffer(self._sizes.get(found[1], ()), f"torch.{found[2]}")
        elif found := _ASSERTED.match(line):
            buffers.setdefault(found[1], Buffer(_split_sizes(found[2]), None))
        elif found := _REUSED.match(line):
            self._module.reuses[found[2]] = found[1]
            if found[2] in buffers:
                buffers[found[1]] = buffers[found[2]]
        else:
            return False
        return True

    def _read_call(self, line: str, number: int) -> None:
        if found := _LIBRARY.search(line):
            given = split_arguments(found[3] + ")")
            out, read = (given[:1], given[1:]) if found[2] else ([], given)
            made = [handle[1] for one in read if (handle := _HANDLE.fullmatch(one))]
            read = [one for one in read if not one.startswith("&")]
            self._add_call(found[1], number, line, False, [*read, *(f"out={one}" for one in out)], [*out, *made])
        elif (found := _CALLED.match(line)) and (name := found[1].removeprefix("call_")) in self._module.definitions:
            given = split_arguments(found[2] + ")")
            pointers = [_POINTER.search(one) for one in given]
            launched = self._module.definitions[name].language == "triton"
            read = given[:-2] if launched else [one[1] if one else "" for one in pointers]
            self._add_call(name, number, line, True, read, [])

    def _add_call(self, name: str, number: int, line: str, generated: bool, given: list[str], out: list[str]) -> None:
        self._module.calls.append(
            ModuleCall(
                kernel=name,
                line=number,
                text=line.strip(),
                is_generated=generated,
                arguments=tuple(given),
                outputs=tuple(out),
                comment=self._comments.pop(),
                partition=None,
            )
        )


def _split_sizes(text: str) -> tuple[str, ...]:
    """Split ``64L, s0`` into ``("64", "s0")``."""
    return tuple(re.sub(r"(?<=\d)L\b", "", part.strip()) for part in text.split(",") if part.strip())
