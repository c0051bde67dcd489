"""Match the statements of a generated kernel with graph nodes, from the loads to the stores.

Inductor names values ``tmp3`` (accumulators ``tmp_acc0``, ``_tmp3``) and buffers ``in_ptr0``, ``out_ptr0`` or
``in_out_ptr0``, and writes one statement per line. A C++ loop has its statements twice: for whole vectors and for the
remainder. No record says which node a statement computes.

Each value in the kernel's text holds a set of nodes. A load holds the node of its buffer. A statement computes a node
when its operands hold the node's inputs and its text fits the node's operator. A statement that fits no node (a
conversion, a broadcast, a part of a variance) is pending: it gets the nodes between the values that are known and the
next statement that fits, or the store. A statement can only compute nodes that lead to the buffers that its value is
stored to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from dynadiag.grouping import grouped, reached
from dynadiag.kernels.graph_parser import PrintedGraph, split_lines
from dynadiag.kernels.module_parser import KernelDefinition, ModuleCall, ParsedModule, buffer_name

_HELPER = "def _triton_helper"  # a helper function of a scan, which has none of the kernel's values
_TARGET = re.compile(r"_?(?:masked_)?tmp\w*")
_VARIABLE = re.compile(r"(?<![\w.])(?:_|masked_)?tmp\w*")
_POINTER = re.compile(r"\b(?:(?:in_out|in|out)_ptr\d+|local_buffer_data\w*)\b")
_ALIAS = re.compile(r"^\s*auto (\w+_ptr\d+) = (\w+_ptr\d+);")
_STORED = re.compile(r"\.store\(|\btl\.store\(|\batomic_\w+[<(]|^\s*\w+_ptr\d+\[.*\] \+?= ")
_TRANSPOSED = re.compile(r"^\s*(?:at::vec::)?transpose_mxn<.*\b(tmp\d+)\b")  # into an array, or out of one
_COPIED = re.compile(r"^\s*(tmp\w*)\.store\((tmp\w*)\b")  # into an array of the kernel's own
_RETURNED = re.compile(r"^\s*return (.*);$")
_LAMBDA = re.compile(r"=\s*\[&\]")
_CONSTANT = re.compile(
    r"(?:static_cast<[^>]*>\(|tl\.full\(\[[^\]]*\], |^ *)(-?\d+(?:\.\d*)?(?:e[-+]?\d+)?|True|False|true|false)"
)
_INDEX = re.compile(r"\[.*?\]")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement. `line` is 0-based in the kernel's source, `reads` are values, `pointers` are buffers."""

    line: int
    kind: str  # "load", "store", "constant" or "compute"
    text: str  # its right-hand side
    targets: tuple[str, ...]
    reads: tuple[str, ...]
    pointers: tuple[str, ...]
    number: float | None = None  # the value of a constant

    @property
    def accumulates(self) -> bool:
        """Whether it adds to an accumulator of a loop."""
        return any("tmp_acc" in one or one.startswith("_tmp") for one in self.targets)

    @property
    def reduces(self) -> bool:
        """Whether it adds to an accumulator of a loop or reads one."""
        return any("tmp_acc" in one or one.startswith("_tmp") for one in self.targets + self.reads)


def _parse_lines(lines: Sequence[str]) -> Iterator[Statement]:
    aliases: dict[str, str] = {}
    lambdas: list[tuple[int, tuple[str, ...]]] = []
    helper = False
    for number, line in enumerate(lines):
        helper = line.startswith(_HELPER) or (helper and not line.startswith("def "))
        if helper:
            continue
        if found := _ALIAS.match(line):
            aliases[found[1]] = aliases.get(found[2], found[2])
        elif (found := _RETURNED.match(line)) and lambdas:
            opened, targets = lambdas.pop()
            yield _parse_statement(number, targets, found[1], aliases)
            yield _parse_statement(opened, targets, found[1], aliases)
        elif targets := _targets(line):
            if _LAMBDA.search(line):
                lambdas.append((number, targets))
            else:
                yield _parse_statement(number, targets, line.partition(" =")[2], aliases)
        elif (found := _TRANSPOSED.match(line)) and (pointers := _pointers(line, aliases)):
            into = line.find(pointers[0]) > found.start(1)
            yield (
                Statement(number, "store", line, (), (found[1],), pointers[:1])
                if into
                else Statement(number, "load", line, (found[1],), (), pointers[:1])
            )
        elif found := _COPIED.match(line):
            yield Statement(number, "compute", line, (found[2],), (found[1],), ())
        elif _STORED.search(line) and _POINTER.search(line):
            value = line.partition("] = ")[2] or line
            reads = _variables(_INDEX.sub("", value))
            yield Statement(number, "store", line, (), reads, _pointers(line, aliases)[:1])


def _targets(line: str) -> tuple[str, ...]:
    """The names that a line assigns: ``auto tmp3 = ...``, ``tmp3_mean, tmp3_m2 = ...``, ``float tmp_acc0[8] = ...``."""
    left, assigns, _ = line.partition(" =")
    if not assigns or "(" in left.replace("(0)", "") or line[len(left) + 2 : len(left) + 3] == "=":
        return ()
    names = [(part.split("[")[0].split() or [""])[-1] for part in left.rstrip(",").split(", ")]
    return tuple(names) if any(_TARGET.fullmatch(name) for name in names) else ()


def _parse_statement(number: int, targets: tuple[str, ...], text: str, aliases: dict[str, str]) -> Statement:
    reads, pointers = _variables(text), _pointers(text, aliases)
    constant = _CONSTANT.search(text) if not reads and not pointers else None
    kind = "load" if pointers else "constant" if not reads else "compute"
    return Statement(number, kind, text, targets, reads, pointers, _parse_number(constant[1]) if constant else None)


def _parse_number(text: str) -> float:
    return float(text.casefold() == "true") if text.isalpha() else float(text)


def _variables(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_VARIABLE.findall(text)))


def _pointers(text: str, aliases: dict[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(aliases.get(one, one) for one in _POINTER.findall(text)))


_FUNCTION_NAMES = (
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "exp2",
    "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "erf", "erfc", "erfinv", "lgamma", "digamma", "floor",
    "ceil", "trunc", "atan2", "hypot", "copysign", "nextafter", "fmod", "remainder", "isnan", "isinf", "signbit", "pow",
    "sigmoid",
)  # fmt: skip
_PATTERNS = {
    "rsqrt": r"rsqrt|1 / std::sqrt",
    "sigmoid": r"sigmoid|neg\(\)\.exp|std::exp\(-",
    "add": r" \+ ",
    "sub": r" - ",
    "rsub": r" - ",
    "mul": r" \* ",
    "square": r" \* ",
    "div": r" / |reciprocal|div_",
    "true_divide": r" / ",
    "reciprocal": r"reciprocal| / ",
    "neg": r"\bneg\(|-tmp|- tmp|decltype\(\w+\)\(-",
    "relu": r"clamp_min|max|relu",
    "maximum": r"max|clamp_min",
    "clamp_min": r"max|clamp_min",
    "clamp_max": r"min|clamp_max",
    "minimum": r"min|clamp_max",
    "abs": r"abs",
    "sign": r"sgn|sign|<|>",
    "round": r"round|nearbyint|rint",
    "eq": r"==",
    "ne": r"!=",
    "ge": r">=",
    "gt": r" > ",
    "le": r"<=",
    "lt": r" < ",
    "where": r"where|blendv|\?",
    "bitwise_and": r" & |&&",
    "logical_and": r" & |&&",
    "bitwise_or": r" \| |\|\|",
    "logical_or": r" \| |\|\|",
    "bitwise_xor": r" \^ ",
    "logical_xor": r" \^ ",
    "bitwise_not": r"~|!",
    "logical_not": r"~|!|== 0",
    "convert_element_type": r"\.to\(|static_cast|convert|!= 0",
    "full": r"full|static_cast",
    "scalar_tensor": r"full|static_cast",
}
_FUNCTION_PATTERNS = {name: rf"(?<![a-z]){name}(?![a-z0-9])" for name in _FUNCTION_NAMES}
_OPERATOR_PATTERNS = {name: re.compile(text) for name, text in {**_FUNCTION_PATTERNS, **_PATTERNS}.items()}
_REDUCTION_PATTERN = re.compile(
    r"tmp_acc|_tmp\d|tl\.(?:sum|max|min|reduce|xor)|(?:max|min|sum|any|prod)2?\(|vec_reduce|with_index"
)
_OFTEN_ELIDED = frozenset({"convert_element_type", "clone", "copy_", "copy", "full", "scalar_tensor", "constant_pad_nd",
                        "alias", "lift_fresh_copy", "fma", "rev"})  # fmt: skip

REDUCTIONS = frozenset({"sum", "mean", "amax", "amin", "max", "min", "prod", "any", "all", "argmax", "argmin"})


def is_single_statement(operator: str) -> bool:
    """Whether one statement computes the operator and its text is known."""
    return operator in _OPERATOR_PATTERNS or operator in REDUCTIONS


def is_often_elided(operator: str) -> bool:
    """Whether Inductor often needs no statement for the operator: a conversion, a copy, a constant."""
    return operator in _OFTEN_ELIDED


def matches_operator(operator: str, text: str) -> bool:
    """Whether a statement with this text can compute the operator."""
    if operator in REDUCTIONS:
        return bool(_REDUCTION_PATTERN.search(text))
    spelling = _OPERATOR_PATTERNS.get(operator)
    return bool(spelling and spelling.search(text))


_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[-+]?\d+)?(?![\w.])")
_MAX_CANDIDATES = 12  # nodes shown for one line: a reader cannot use more


@dataclass(frozen=True, slots=True)
class KernelBuffers:
    """The nodes whose values a kernel's parameters hold at its start (`loaded`) and at its end (`stored`)."""

    loaded: Mapping[str, frozenset[str]]
    stored: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class AlignedStatement:
    """A statement: its line (0-based in the kernel's source), its kind, and the nodes that it is part of."""

    line: int
    kind: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Value:
    """What a variable holds: its nodes, all their ancestors, the statements still without a node, and the constants."""

    nodes: frozenset[str] = frozenset()
    ancestors: frozenset[str] = frozenset()
    pending: frozenset[int] = frozenset()
    constants: frozenset[float] = frozenset()


def align_statements(
    source: str, buffers: KernelBuffers, graph: PrintedGraph, nodes: Sequence[str]
) -> tuple[AlignedStatement, ...]:
    """Return each statement of a kernel with the nodes that it computes. `nodes` are the nodes of the whole kernel."""
    parsed = tuple(_parse_lines(split_lines(source)))  # none of a kernel that Inductor did not write
    read = {name for one in parsed for name in one.reads}
    found = tuple(one for one in parsed if one.kind != "constant" or not read.isdisjoint(one.targets))
    return _Alignment(found, buffers, graph, nodes).run() if found and nodes else ()


def producer(graph: PrintedGraph, name: str) -> str:
    """Return the node that computes the value of a node. Views and items of a result lead back to their source."""
    for _ in range(len(graph.nodes)):
        root = graph.root(name)
        node = graph.nodes.get(root)
        if node is None or node.operator != "getitem" or not node.inputs:
            return root
        name = node.inputs[0]
    return name


class _Alignment:
    """The state of one alignment."""

    def __init__(
        self, found: Sequence[Statement], buffers: KernelBuffers, graph: PrintedGraph, nodes: Sequence[str]
    ) -> None:
        self._statements, self._buffers, self._graph = found, buffers, graph
        self._names = [name for name in nodes if name in graph.nodes and graph.nodes[name].computes]
        self._parents = {name: _producers(graph, graph.nodes[name].inputs) for name in self._names}
        self._children = grouped((parent, name) for name, parents in self._parents.items() for parent in parents)
        self._buffer_nodes = {name for held in buffers.loaded.values() for name in held}
        self._detached = {
            name for name, parents in self._parents.items() if not self._buffer_nodes.union(self._parents) >= parents
        }
        self._constants = {name: _constants_in(graph.nodes[name].text) for name in self._names}
        self._sources = _operand_sources(found)
        self._stores = _reached_stores(found, self._sources)
        self._slices: dict[frozenset[str], frozenset[str]] = {}
        self._values: dict[str, _Value] = {}
        self._memory = dict(buffers.loaded)
        self._data_dependent: set[int] = set()  # statements whose value depends on what was loaded
        self._nodes: dict[int, set[str]] = {place: set() for place in range(len(found))}

    def run(self) -> tuple[AlignedStatement, ...]:
        for place, statement in enumerate(self._statements):
            self._step(place, statement)
        for place, makers in enumerate(self._sources):
            self._nodes[place] = self._nodes[place] or {name for one in makers for name in self._nodes[one]}
        return tuple(
            AlignedStatement(one.line, one.kind, self._ordered(self._nodes[place] or self._few_candidates(place)))
            for place, one in enumerate(self._statements)
        )

    def _few_candidates(self, place: int) -> frozenset[str]:
        """The candidates of a statement that fits no node, or nothing when there are too many to be useful."""
        found = self._candidates(place)
        return found if len(found) <= _MAX_CANDIDATES else frozenset()

    def _ordered(self, names: Set[str]) -> tuple[str, ...]:
        return tuple(name for name in self._names if name in names)

    def _step(self, place: int, statement: Statement) -> None:
        operands = [self._values[name] for name in statement.reads if name in self._values]
        if statement.kind == "store":
            self._store(place, statement, operands)
            return
        if statement.kind == "constant":
            numbers = frozenset() if statement.number is None else frozenset([statement.number])
            value = _Value(pending=frozenset([place]), constants=numbers)
        elif statement.kind == "load":
            held = frozenset(name for one in statement.pointers for name in self._memory.get(one, ()))
            value = self._load(place, _merge([*operands, _Value(held, held)], place), indexed=bool(operands))
        else:
            value = self._compute(place, statement, operands)
        for target in statement.targets:
            self._values[target] = value

    def _load(self, place: int, whole: _Value, *, indexed: bool) -> _Value:
        """A load. One at a computed index can be a node by itself, such as an embedding."""
        fitting = self._multi_statement(one for one in self._candidates(place) if self._parents[one] <= whole.nodes)
        if not indexed or not fitting:
            return whole
        self._assign(whole, place, fitting)
        return _Value(frozenset(fitting), whole.ancestors | fitting)

    def _compute(self, place: int, statement: Statement, operands: list[_Value]) -> _Value:
        whole = _merge(operands, place)
        if whole.ancestors:
            self._data_dependent.add(place)
        names = self._matching_nodes(place, statement, operands, whole)
        if not names:
            return whole
        self._assign(whole, place, names)
        return _Value(frozenset(names), whole.ancestors | set(names))

    def _assign(self, whole: _Value, place: int, names: set[str]) -> None:
        """Assign `names` to a statement. Its pending operands get the nodes in between, or the same nodes."""
        self._nodes[place] |= names
        between = self._nodes_between(whole, names)
        for one in whole.pending - {place}:
            self._nodes[one] |= (between or names) if one in self._data_dependent else names

    def _nodes_between(self, whole: _Value, names: set[str]) -> set[str]:
        """The ancestors of `names` that no statement has computed so far."""
        return self._leading_to((parent for name in names for parent in self._parents[name]), whole.ancestors)

    def _leading_to(self, names: Iterable[str], known: frozenset[str] = frozenset()) -> set[str]:
        """These nodes and their ancestors, without those that are known and what leads to them."""

        def unknown(some: Iterable[str]) -> Iterable[str]:
            return (name for name in some if name in self._parents and name not in known)

        return reached(unknown(names), lambda name: unknown(self._parents[name]))

    def _matching_nodes(self, place: int, statement: Statement, operands: list[_Value], whole: _Value) -> set[str]:
        """The nodes that a statement computes. There are several when the generator merged equal nodes."""
        if statement.reduces and (going := {one for one in whole.nodes if self._is_reduction(one)}):
            return going  # the next step of the same sum
        text = f"{' '.join(statement.targets)} ={statement.text}"
        scored = {
            name: score
            for name in self._next_nodes(whole) & self._candidates(place)
            if (self._is_reduction(name) or not statement.accumulates)
            and matches_operator(self._graph.nodes[name].operator, text)
            and (score := self._score(name, operands, whole)) is not None
        }
        best = max(scored.values(), default=None)
        return {name for name, score in scored.items() if score == best}

    def _next_nodes(self, whole: _Value) -> set[str]:
        """The nodes that may be computed next: users of known values, also through nodes that have no statement."""
        found: set[str] = set()
        queue = [*whole.nodes, *whole.ancestors]
        while queue:
            new = {*self._children.get(queue.pop(), ())} - found
            found |= new
            queue += self._multi_statement(new) | {
                name for name in new if is_often_elided(self._graph.nodes[name].operator)
            }
        return found | self._detached

    def _is_reduction(self, name: str) -> bool:
        return name in self._parents and self._graph.nodes[name].operator in REDUCTIONS

    def _score(self, name: str, operands: list[_Value], whole: _Value) -> tuple[int, int] | None:
        """How well the operands fit a node, or None when they cannot be its inputs. Higher is better."""
        parents = self._parents[name]
        missing = parents - whole.nodes
        if any(not self._may_have_no_statement(one, whole) for one in missing):
            return None
        behind = parents.union(*(self._parents.get(one, frozenset()) for one in missing))
        for operand in operands:
            if operand.nodes and not (operand.nodes & parents or (missing and operand.ancestors & behind)):
                return None
        mine = self._constants[name]
        agreement = len(mine & whole.constants) - len(whole.constants - mine) if whole.constants else -len(mine)
        return -len(missing), agreement

    def _may_have_no_statement(self, name: str, whole: _Value, depth: int = 4) -> bool:
        """Whether a node may have been computed without a statement of its own."""
        if name in whole.nodes:
            return True
        if name not in self._parents:  # loaded from a buffer whose node is not known
            return name not in self._buffer_nodes
        operator = self._graph.nodes[name].operator
        if depth == 0 or (is_single_statement(operator) and not is_often_elided(operator)):
            return False
        return all(
            one in whole.ancestors or self._may_have_no_statement(one, whole, depth - 1) for one in self._parents[name]
        )

    def _store(self, place: int, statement: Statement, operands: list[_Value]) -> None:
        whole = _merge(operands, place)
        sinks = {name for one in statement.pointers for name in self._buffers.stored.get(one, ())}
        mine = {name for name in whole.nodes if name in self._parents} or sinks & set(self._names)
        late = self._nodes_before_store(whole, sinks)
        self._nodes[place] |= late or mine
        for one in whole.pending - {place}:
            self._nodes[one] |= late or mine
        left = frozenset(sinks if sinks <= late or sinks <= whole.nodes else late or whole.nodes)
        self._memory.update(dict.fromkeys(statement.pointers, left))
        self._buffer_nodes |= left

    def _nodes_before_store(self, whole: _Value, sinks: set[str]) -> set[str]:
        """The nodes that only a store accounts for: those between the known values and the nodes of the buffer."""
        if sinks <= whole.nodes:
            return set()
        mine = sinks & set(self._names)
        late = self._nodes_between(whole, mine) | (mine - whole.ancestors)
        return (
            self._multi_statement(late)
            or self._multi_statement(one for name in late for one in self._parents[name])
            or late
        )

    def _multi_statement(self, names: Iterable[str]) -> set[str]:
        """The nodes among `names` that take several statements, whose text says nothing about the operator."""
        found = {
            name
            for name in names
            if name in self._parents and not is_single_statement(self._graph.nodes[name].operator)
        }
        return {name for name in found if not is_often_elided(self._graph.nodes[name].operator)} or found

    def _candidates(self, place: int) -> frozenset[str]:
        """The nodes that lead to the buffers that the statement's value is stored to.

        All nodes when those are unknown.
        """
        pointers = {pointer for end in self._stores.get(place, ()) for pointer in self._statements[end].pointers}
        known = pointers <= self._buffers.stored.keys()
        sinks = frozenset(name for one in pointers for name in self._buffers.stored[one]) if known else frozenset()
        if sinks not in self._slices:
            self._slices[sinks] = frozenset(self._leading_to(sinks)) or frozenset(self._names)
        return self._slices[sinks]


def _merge(operands: Iterable[_Value], place: int) -> _Value:
    given = list(operands)
    return _Value(
        frozenset().union(*(one.nodes for one in given)),
        frozenset().union(*(one.ancestors for one in given)),
        frozenset([place]).union(*(one.pending for one in given)),
        frozenset().union(*(one.constants for one in given)),
    )


def _operand_sources(found: Sequence[Statement]) -> list[list[int]]:
    """For each statement, the indexes of the statements that its operands come from."""
    last: dict[str, list[int]] = {}
    makers: list[list[int]] = []
    for place, statement in enumerate(found):
        makers.append([one for name in statement.reads for one in last.get(name, ())])
        for target in statement.targets:
            before = last.get(target, []) if target in statement.reads or "acc" in target else []
            last[target] = [*before[-4:], place]
    return makers


def _reached_stores(found: Sequence[Statement], makers: Sequence[Sequence[int]]) -> dict[int, set[int]]:
    """For each statement, the stores that its value reaches."""
    ends: dict[int, set[int]] = {}
    for place in reversed(range(len(found))):
        if found[place].kind == "store":
            ends.setdefault(place, set()).add(place)
        for one in makers[place]:
            ends.setdefault(one, set()).update(ends.get(place, ()))
    return ends


def _constants_in(text: str) -> frozenset[float]:
    """The numeric constants among a node's arguments."""
    return frozenset(float(one) for one in _NUMBER.findall(text.partition("(")[2]))


_NodesByBuffer = Mapping[str, frozenset[str]]  # known nodes by buffer name

_PARAMETER = re.compile(r"((?:in_out|in|out)_ptr\d+)")


def align_call(
    module: ParsedModule, call: ModuleCall, graph: PrintedGraph, nodes: Sequence[str], known: _NodesByBuffer
) -> tuple[AlignedStatement, ...]:
    """Return the statements of the called kernel with their nodes. Lines are those of the module, 1-based."""
    definition = module.definitions.get(call.kernel)
    if definition is None:
        return ()
    found = align_statements(definition.source, _kernel_buffers(module, call, definition, known, graph), graph, nodes)
    return tuple(replace(one, line=definition.first_line + one.line) for one in found)


def _kernel_buffers(
    module: ParsedModule, call: ModuleCall, definition: KernelDefinition, known: _NodesByBuffer, graph: PrintedGraph
) -> KernelBuffers:
    """The nodes of a kernel's parameters in this call. Unknown parameters are left out."""
    holds: dict[str, frozenset[str]] = {}
    gets: dict[str, frozenset[str]] = {}
    for parameter, argument in zip(definition.parameters, call.arguments, strict=False):
        found, name = _PARAMETER.search(parameter), buffer_name(argument)
        if found is None or name is None:
            continue
        own = found[1]
        found_there = _reused_buffer(module, call, name) if own.startswith("in_out") else name
        holds[own] = _producers(graph, _nodes_of_buffer(module, found_there, known, graph)) | _producers(
            graph, (source for one in _input_copies(graph, found_there) for source in graph.nodes[one].inputs[1:])
        )
        if not own.startswith("in_ptr"):
            gets[own] = frozenset(_input_copies(graph, name)) or _producers(
                graph, _nodes_of_buffer(module, name, known, graph)
            )
    return KernelBuffers(
        {one: nodes for one, nodes in holds.items() if nodes}, {one: to for one, to in gets.items() if to}
    )


def _nodes_of_buffer(module: ParsedModule, name: str, known: _NodesByBuffer, graph: PrintedGraph) -> frozenset[str]:
    """The nodes of a buffer, under the first of its names that is known."""
    seen: set[str] = set()
    while name not in seen:
        seen.add(name)
        if name in known:
            return known[name]
        if name in graph.nodes:
            return frozenset([name])
        name = module.aliases.get(name) or module.items.get(name, ("", 0))[0] or module.slices.get(name, name)
    return frozenset()


def _producers(graph: PrintedGraph, names: Iterable[str]) -> frozenset[str]:
    return frozenset(producer(graph, name) for name in names)


def _reused_buffer(module: ParsedModule, call: ModuleCall, name: str) -> str:
    """The buffer whose memory this one reuses: the last that an earlier call used."""
    before = {after: old for old, after in module.reuses.items()}
    used: set[str | None] = set()
    for one in module.calls:
        if one.line >= call.line:
            break
        used.update(one.outputs, map(buffer_name, one.arguments))
    while name not in used and name in before:
        name = before[name]
    return name


def _input_copies(graph: PrintedGraph, name: str) -> tuple[str, ...]:
    """The copies that write an input of the graph, if the buffer is one."""
    users = (graph.nodes[user] for user in graph.users.get(name, ()) if not graph.nodes[name].target)
    return tuple(one.name for one in users if one.operator == "copy_" and one.inputs[:1] == (name,))
