"""Parse a module that Inductor generated: the kernels that it defines, its calls, its buffers.

Inductor writes ``NAME = async_compile.KIND(..., '''SOURCE''', ...)`` for each kernel. In ``call`` it writes one line
for each launch, allocation and reuse of memory. Lines are 1-based."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dynadiag.kernels.graph_parser import names_in, split_arguments, split_lines

_SOURCES = re.compile(r"^\s*# (?:Topologically Sorted|Unsorted) Source Nodes: \[([^\]]*)\], Original ATen: \[")
_FRAGMENT_NODE = re.compile(r"^\s*#   %(\w+) :.*? = (\w+)\[target=")
_RETURN = re.compile(r"^\s*#   return (.*)$")


@dataclass(slots=True)
class Comment:
    """One comment. `sources` are Dynamo's nodes, `nodes` and `reads` are nodes of the lowered graph."""

    line: int
    sources: tuple[str, ...]
    nodes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    returns: list[str] = field(default_factory=list)


class CommentReader:
    """Collects the comment above the next statement."""

    def __init__(self) -> None:
        self._comment: Comment | None = None

    def feed(self, line: str, number: int) -> bool:
        """Take one line. Returns whether it is a comment."""
        if not line.lstrip().startswith("#"):
            return False
        if found := _SOURCES.match(line):
            self._comment = Comment(number, _split(found[1]))
        elif self._comment is not None:
            self._add_detail(self._comment, line)
        return True

    def _add_detail(self, comment: Comment, line: str) -> None:
        if found := _FRAGMENT_NODE.match(line):
            (comment.reads if found[2] == "PlaceHolder" else comment.nodes).append(found[1])
        elif found := _RETURN.match(line):
            comment.returns.extend(one.lstrip("%") for one in _split(found[1]))

    def pop(self) -> Comment | None:
        """Return the comment above the current statement and forget it."""
        comment, self._comment = self._comment, None
        return comment


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_LANGUAGES = {"cpp": "cpp", "cpp_pybinding": "cpp", "triton": "triton"}

_STAGE = re.compile(r"# AOT ID: \['[^']*_(\w+?)'\]")
_DEFINED = re.compile(r"^(\w+) = async_compile\.(\w+)\(")
_QUOTE = re.compile(r"r?('''|\"\"\")$")
_CALLED = re.compile(
    r"^\s+(?:(?P<out>\w+(?:, \w+)*) = )?"
    r"(?:(?P<extern>extern_kernels\.\w+)|(?P<op>(?:torch\.ops|aten|inductor_ops|_quantized)\.[\w.]+)"
    r"|(?P<kernel>\w+?)(?P<run>\.run)?)\("
)
_ALLOCATED = re.compile(r"^\s+(\w+) = (?:empty_strided\w*|rand_strided|generate_example_value)\(")
# Since torch 2.15 one line may check several buffers, or a dtype
_ASSERTED = re.compile(r"^\s+assert_(?:size_stride|tensor_metadata)(_grouped)?\(")
_REUSED = re.compile(r"^\s+(\w+) = (?:reinterpret_tensor\()?(\w+)\b[^=]*?;\s+del \2\b")
_ALIASED = re.compile(r"^\s+(\w+) = (?:reinterpret_tensor\((\w+)\b|(\w+)$|alloc_from_pool\((\w+)\b)")
_ITEM = re.compile(r"^\s+(\w+) = (\w+)\[(\d+)\]$")
_SUBGRAPH_RUN = re.compile(r"^\s+\(?(\w+)\b.* = (\w+)\(\2_args\)")
_SUBGRAPH_INPUTS = re.compile(r"^\s+(\w+)_args = \[(.*)\]$")
_PREDICATE = re.compile(r"^\s+(?:if |\w+_selector = int\()(\w+)\.item\(\)")  # the predicate; since 2.15 a selector
_LOOP_INITIAL = re.compile(r"^\s+(\w+\[\d+\]) = (\w+)$")  # the initial value of a loop
_BENCHMARK = re.compile(r"^def (?:get_args|benchmark_compiled_module)\(")
_FUNCTION = re.compile(r"^(?:    )?def (\w+)\((?:self, )?args\):")  # a function that runs kernels
_PARTITION = re.compile(r"partition_\d+")
_CPP_PARAMETERS = re.compile(r"extern \"C\"[^(]*\(([^)]*)\)")
_MUTATED = re.compile(r"'mutated_arg_names': \[([^\]]*)\]")
_QUOTED = re.compile(r"'(\w+)'")
_TRITON_PARAMETERS = re.compile(r"(?m)^def (\w+)\(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class KernelDefinition:
    """A kernel that the module defines.

    Its source is lines `first_line` to `last_line` of the module, both included.
    """

    name: str
    language: str  # "cpp", "triton", or the name of another backend as Inductor writes it
    line: int
    first_line: int
    last_line: int
    source: str
    parameters: tuple[str, ...]  # as declared: "const float* in_ptr0", "in_ptr0"
    mutated: tuple[str, ...]  # parameters that the metadata of a Triton kernel lists as mutated
    comment: Comment | None


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """A kernel launch or a library call. `split_arguments` are its buffers, `outputs` the names that it assigns."""

    kernel: str
    line: int
    text: str
    is_generated: bool
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    comment: Comment | None
    partition: str | None  # CUDA graph partition, if the module has several
    subgraph: str = ""  # branch or loop body that it is in (`torch.cond`, `while_loop`)


@dataclass(frozen=True, slots=True)
class Buffer:
    """Sizes and dtype (``torch.float32``) of a buffer, as expressions of the text."""

    sizes: tuple[str, ...]
    dtype: str | None


@dataclass
class ParsedModule:
    """The parsed text of a generated module.

    `returns` has the returned buffers by subgraph; ``""`` is the module itself. ``reuses[a] == b``: buffer b reuses the
    memory of a. ``aliases[b] == a``: b is another name of a. ``slices[b] == a``: b is a view of a or a part of it.
    ``items[b] == (a, i)``: b is a[i]. ``subgraph_results[b] == s``: b is what subgraph s returns.
    ``subgraph_inputs[s]`` are the buffers that s is called with, after the predicate. `selects_gpu`: the module selects
    a GPU to run on.
    """

    stage: str | None = None
    definitions: dict[str, KernelDefinition] = field(default_factory=dict)
    calls: list[ModuleCall] = field(default_factory=list)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    reuses: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    slices: dict[str, str] = field(default_factory=dict)
    items: dict[str, tuple[str, int]] = field(default_factory=dict)
    subgraph_results: dict[str, str] = field(default_factory=dict)
    subgraph_inputs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    returns: dict[str, tuple[str | None, ...]] = field(default_factory=dict)
    selects_gpu: bool = False


def parse_module(text: str) -> ParsedModule:
    """Parse a generated module. Unknown text is left out."""
    return _ModuleParser(split_lines(text)).parse()


class _ModuleParser:
    """The state of one parse."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._module = ParsedModule(selects_gpu=any("_DeviceGuard(" in line for line in lines))
        self._comments = CommentReader()
        self._partition: str | None = None
        self._subgraph = ""
        self._predicate: list[str] = []  # the predicate of the next branch
        self._loop_initials: dict[str, str] = {}
        self._return_owner = ""  # the subgraph or partition that the next return statement belongs to
        self._in_benchmark = False

    def parse(self) -> ParsedModule:
        if self._lines and (found := _STAGE.match(self._lines[0])):
            self._module.stage = found[1]
        place = 0
        while place < len(self._lines):
            line = self._lines[place]
            if found := _DEFINED.match(line):
                place = self._read_definition(place, found)
            elif self._comments.feed(line, place + 1):
                place += 1
            else:
                if line.startswith(("def ", "    def ")):
                    self._enter_function(line)
                if self._in_benchmark:
                    self._read_allocation(line)
                elif not self._read_buffer(line):
                    self._read_call(line, place + 1)
                place += 1
        return self._module

    def _read_definition(self, place: int, found: re.Match[str]) -> int:
        """Read the definition that begins at index `place`. Returns the index after it."""
        quote = _QUOTE.search(self._lines[place])
        end = place
        if quote is not None:
            end = next((n for n in range(place + 1, len(self._lines)) if self._lines[n].startswith(quote[1])), place)
        begin = next((n for n in range(place + 1, end) if self._lines[n].strip()), end)
        source = "\n".join(self._lines[begin:end])
        language = _LANGUAGES.get(found[2], found[2])
        self._module.definitions[found[1]] = KernelDefinition(
            name=found[1],
            language=language,
            line=place + 1,
            first_line=begin + 1,
            last_line=end,
            source=source.strip("\n") + "\n" if source.strip() else "",
            parameters=_parameters(source, language, found[1]),
            mutated=tuple(_QUOTED.findall(" ".join(_MUTATED.findall(source)))),
            comment=self._comments.pop(),
        )
        return end + 1

    def _enter_function(self, line: str) -> None:
        """Enter a function: the module's own, a CUDA graph partition, a subgraph, or another one."""
        name = found[1] if (found := _FUNCTION.match(line)) else ""
        self._in_benchmark = bool(_BENCHMARK.match(line))
        self._partition = name if _PARTITION.fullmatch(name) else None
        self._subgraph = "" if self._partition or name == "call" else name
        self._return_owner = self._partition or self._subgraph

    def _read_buffer(self, line: str) -> bool:
        """Read a line that only describes buffers. Returns whether it is one."""
        module = self._module
        if found := _ITEM.match(line):
            module.items[found[1]] = (found[2], int(found[3]))
        elif found := _REUSED.match(line):
            module.reuses[found[2]] = found[1]
            self._add_view(line, found[1], found[2])
        elif self._read_allocation(line):
            pass
        elif found := _ALIASED.match(line):
            source = found[2] or found[3] or found[4]
            (module.aliases if found[3] else module.slices)[found[1]] = source
            self._add_view(line, found[1], source)
        elif found := _ASSERTED.match(line):
            name, sizes, *rest = [*split_arguments(line, line.index("(") + 1), "", ""]
            dtype = next((one for one in rest if one.startswith("torch.")), None)
            pairs = zip(_split_sizes(name), _split_sizes(sizes), strict=False) if found[1] else [(name, sizes)]
            for one, each in pairs:
                module.buffers.setdefault(one, Buffer(_split_sizes(each), dtype))
        elif found := _SUBGRAPH_RUN.match(line):
            module.subgraph_results[found[1]] = found[2]
        elif found := _SUBGRAPH_INPUTS.match(line):
            given = [self._loop_initials.get(one, one) for one in split_arguments(found[2] + "]")]
            module.subgraph_inputs.setdefault(found[1], (*self._predicate, *given))
            self._predicate = []
        elif found := _PREDICATE.match(line):
            self._predicate = [found[1]]
        elif found := _LOOP_INITIAL.match(line):
            self._loop_initials.setdefault(found[1], found[2])
        elif line.lstrip().startswith("return ("):
            module.returns.setdefault(self._return_owner, _returned_buffers(line))
        else:
            return False
        return True

    def _read_allocation(self, line: str) -> bool:
        found = _ALLOCATED.match(line)
        if found is None:
            return False
        given = split_arguments(line, found.end())
        dtype = next((one.removeprefix("dtype=") for one in given if "torch." in one), None)
        known = self._module.buffers.get(found[1])
        if known is None or known.dtype is None:
            sizes = known.sizes if known and (self._in_benchmark or not given) else _split_sizes(given[0])
            self._module.buffers[found[1]] = Buffer(sizes, dtype)
        return True

    def _add_view(self, line: str, name: str, source: str) -> None:
        known = self._module.buffers.get(source)
        place = line.find("reinterpret_tensor(")
        if place >= 0:
            given = split_arguments(line, place + len("reinterpret_tensor("))
            if len(given) > 1:
                self._module.buffers[name] = Buffer(_split_sizes(given[1]), known.dtype if known else None)
        elif known is not None:
            self._module.buffers[name] = known

    def _read_call(self, line: str, number: int) -> None:
        found = _CALLED.match(line)
        if found is None or (found["kernel"] and found["kernel"] not in self._module.definitions):
            return
        name = found["kernel"] or found["extern"] or found["op"]
        name = name.removeprefix("extern_kernels.").removeprefix("torch.ops.")
        given = split_arguments(line, found.end())
        out = tuple(found["out"].split(", ")) if found["out"] else ()
        self._module.calls.append(
            ModuleCall(
                kernel=name,
                line=number,
                text=line.strip(),
                is_generated=found["kernel"] is not None,
                arguments=tuple(given),
                outputs=out + tuple(names_in(one)[-1] for one in given if one.startswith("out=")),
                comment=self._comments.pop(),
                partition=self._partition,
                subgraph=self._subgraph,
            )
        )


def _split_sizes(text: str) -> tuple[str, ...]:
    """Split ``(2, s0, )`` into ``("2", "s0")``."""
    inner = text.strip()
    return tuple(split_arguments(inner + ")", 1)) if inner.startswith("(") else ()


def _parameters(source: str, language: str, name: str) -> tuple[str, ...]:
    if language == "cpp":
        found = _CPP_PARAMETERS.search(source)
        return split_parameters(found[1]) if found else ()
    functions = dict(_TRITON_PARAMETERS.findall(source))  # the helpers of a scan come before the kernel
    return split_parameters(functions.get(name) or next(reversed(functions.values()), ""))


def split_parameters(text: str) -> tuple[str, ...]:
    """Split the parameters of a kernel as they are declared; white space is folded."""
    return tuple(" ".join(part.split()) for part in text.split(",") if part.strip())


def _returned_buffers(line: str) -> tuple[str | None, ...]:
    return tuple(buffer_name(one) for one in split_arguments(line, line.index("(") + 1))


def buffer_name(argument: str) -> str | None:
    """Return the buffer that an argument is, or is a view of. None for a number or a string."""
    argument = argument.removeprefix("out=")
    while argument.startswith("reinterpret_tensor("):
        # The argument of ``reinterpret_tensor(...)`` that it views.
        given = split_arguments(argument, argument.index("(") + 1)
        argument = given[0] if given else ""
    return argument if argument.isidentifier() else None


def memory_chain(module: ParsedModule, name: str) -> Mapping[str, None]:
    """Return the names that a buffer's memory has over time, the buffer itself first."""
    found: dict[str, None] = {}
    while name and name not in found:
        found[name] = None
        name = module.reuses.get(name, "")
    return found


_READ = re.compile(r"\bin_ptr|^const [^*]*\*")
_WRITTEN = re.compile(r"\bout_ptr")
_UPDATED = re.compile(r"\bin_out_ptr")


@dataclass(frozen=True, slots=True)
class BufferAccess:
    """The buffers that a call reads, writes, and updates in place."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    updates: tuple[str, ...]


def buffer_access(module: ParsedModule, call: ModuleCall) -> BufferAccess:
    """Return the buffers that a call reads and writes.

    They follow from parameter names, or a library call's arguments.
    """
    definition = module.definitions.get(call.kernel)
    if definition is None:
        given = [buffer_name(one) for one in call.arguments if not one.startswith("out=")]
        return BufferAccess(_unique(given), call.outputs, ())
    reads, writes, both = [], [], []
    for parameter, argument in zip(definition.parameters, call.arguments, strict=False):
        name = buffer_name(argument)
        if _UPDATED.search(parameter):
            both.append(name)
        elif _WRITTEN.search(parameter):
            writes.append(name)
        elif _READ.search(parameter):
            reads.append(name)
        elif name in module.buffers and definition.language != "cpp":  # a kernel that the user wrote
            (both if parameter.split(":")[0].strip() in definition.mutated else reads).append(name)
    return BufferAccess(_unique(reads), _unique(writes), _unique(both))


def _unique(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name is not None))
