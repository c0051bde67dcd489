"""Programs in which a change of the catalogue is wrong, each with the obligations of the proof that find it out.

`target` is what a program compiles, and `run` makes its calls. ``marked`` is the place of the break; of a recompile it
is the value that changes, and ``values`` are two of its values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Adversary:
    """One program, a piece of the title of the wrong change, and what differs with it."""

    source: str
    marked: str
    title: str
    found_by: frozenset[str]
    compiled: bool = False  # whether the change has its effect in compiled code alone
    hints: tuple[str, ...] = ()
    values: tuple[str, str] | None = None
    function: str = "target"
    in_library: bool = False  # whether the place of the break counts as a library's
    gb_id: str | None = None
    backend: str = "eager"  # of the changed program


def _program(body: str, calls: str, head: str = "", arguments: str = "x") -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    made = "".join(f"    {line}\n" for line in calls.splitlines())
    imports = "import copy\nimport numpy as np\nimport torch\n\n"
    return f"{imports}{head}\ndef target({arguments}):\n{lines}\n\ndef run(call):\n{made}"


_CALL = "call(torch.randn(3, 4, requires_grad=True))"
_WHERE, _TENSOR = "`torch.where`", "a tensor instead of reading"
_SYMBOLS = "torch._dynamo.config.allow_unspec_int_on_nn_module"
_SHOWN = "logging.StreamHandler(sys.stdout)"
_IGNORED = "Add the logging method to `torch._dynamo.config.ignore_logging_functions`."
_SCALARS = "Consider setting `torch._dynamo.config.capture_scalar_outputs = True`"


def _where(body: str, found_by: str, condition: str = "x.sum() > 0", head: str = "", calls: str = _CALL) -> Adversary:
    return Adversary(_program(body, calls, head), condition, _WHERE, frozenset(found_by.split()))


def _number(
    body: str, marked: str, found_by: str, calls: str = _CALL, head: str = "", arguments: str = "x"
) -> Adversary:
    return Adversary(_program(body, calls, head, arguments), marked, _TENSOR, frozenset(found_by.split()))


def _attribute(body: str, found_by: str, title: str = "in a buffer") -> Adversary:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    source = (
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.calls = 0\n        self.seen = {}\n\n"
        f"    def forward(self, x):\n        self.calls += 1\n{lines}\n\n"
        "target = Net()\n\n\ndef made():\n    return torch.compile(target)\n\n\n"
        "def run(call):\n    for _ in range(3):\n        y = call(torch.randn(3))\n"
    )
    found = frozenset(found_by.split())
    return Adversary(source, "L['self'].calls", title, found, values=("0", "1"), function="Net.forward")


def _state(
    body: str, marked: str, found_by: str, made: str = "self.best = torch.zeros(())", more: str = ""
) -> Adversary:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    source = (
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n        {made}\n\n{more}    def forward(self, x):\n{lines}\n\n"
        "target = Net()\n\n\ndef run(call):\n    for sign in (1, -1):\n        y = call(sign * torch.arange(3.0))\n"
    )
    return Adversary(source, marked, _WHERE, frozenset(found_by.split()))


def _object(body: str, found_by: str, more: str = "") -> Adversary:
    """A branch with an effect on the object."""
    made = _state(body, "x.sum() > 0", found_by, "self.count, self.seen = 0, []", more)
    return replace(made, title="run what is done on the condition", compiled=True, function="Net.forward")


def _side(body: str, found_by: str, title: str = "print on the condition", calls: str = _CALL) -> Adversary:
    """A branch with an effect of its own on a side."""
    head = "SEEN = []\n\n\ndef loud(y):\n    print('loud')\n    return y + 1\n\n"
    return _change(body, "x.sum() > 0", title, found_by, calls, head, compiled=True)


def _rotation(methods: str, found_by: str) -> Adversary:
    lines = "".join(f"    {line}\n" for line in methods.splitlines())
    head = (
        f"import collections\n\n\nclass deque(collections.deque):\n{lines}\n\n"
        "TURNS = []\nQUEUE = deque([1.0, 2.0, 3.0])\n\n"
    )
    return _change("QUEUE.rotate(1)\nreturn x * QUEUE[0]", "QUEUE.rotate(1)", "`extendleft`", found_by, head=head)


def _cond(taken: str, other: str, found_by: str, then: str = "") -> Adversary:
    """A branch on which one side sets two names, and the other one of them."""
    sides = [side.replace("\n", "\n    ") for side in (taken, other)]
    body = f"a, c = x * 2, x * 5\nif x.sum() > 0:\n    {sides[0]}\nelse:\n    {sides[1]}\n{then}return a, b"
    return _change(body, "x.sum() > 0", "`torch.cond`", found_by, head="SEEN = [0]\n\n", compiled=True)


def _method(rest: str, found_by: str, check: str = "") -> Adversary:
    lines = "".join(f"        {line}\n" for line in rest.splitlines())
    source = (
        "import sys\nimport time\nimport torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n"
        f"    def forward(self, x):\n        time.sleep(0)\n{lines}\n\n"
        "target = Net()\n\n\ndef made():\n    return torch.compile(target, backend='eager')\n\n\n"
        f"def run(call):\n    y = call(torch.randn(3))\n    {check}\n"
    )
    found = frozenset(found_by.split())
    return Adversary(source, "time.sleep(0)", "in front of what is compiled", found, function="Net.forward")


def _behind(rest: str, found_by: str, check: str = "") -> Adversary:
    """A model that keeps a number in the middle of what is compiled."""
    made = _method(rest, found_by, check)
    source = made.source.replace("        time.sleep(0)\n", "        self.seen.append(x.sum().item())\n")
    source = source.replace("class Net(nn.Module):\n", "class Net(nn.Module):\n    seen = []\n\n")
    if "raise" in rest:
        call = "    y = call(torch.randn(3))\n"
        source = source.replace(call, f"    try:\n    {call}    except ValueError:\n        pass\n")
    return replace(made, source=source, marked="x.sum().item()", title="behind the call")


def _counted_behind(found_by: str) -> Adversary:
    """A model whose method reads what a side of a branch counts."""
    made = _behind("return x * self.counted()", found_by)
    branch = "        if x.sum() > -99:\n            self.count += 1\n"
    source = made.source.replace("        self.seen.append(x.sum().item())\n", branch)
    source = source.replace("    seen = []\n", "    count = 0\n\n    def counted(self):\n        return self.count\n")
    return replace(made, source=source, marked="x.sum() > -99")


def _kept(rest: str, found_by: str, more: str = "", check: str = "") -> Adversary:
    """A model that keeps a number of a tensor in an attribute."""
    made = _behind(rest, found_by, check)
    source = made.source.replace("self.seen.append(x.sum().item())\n", "self.last = x.sum().item()\n")
    lines = "".join(f"    {line}\n" for line in more.splitlines())
    source = source.replace("    seen = []\n", f"    last = 0.0\n\n{lines}")
    return replace(made, source=source, title="that are kept")


def _library(context: str, body: str, found_by: str) -> Adversary:
    first, _, rest = context.partition("\n")
    block = f"with {first}:\n" + "".join(f"    {line}\n" for line in [*rest.splitlines(), "y = x * 2"])
    head = "import contextlib\nimport warnings\n\nwarnings.showwarning = lambda message, *_: print(message)\n\n"
    source = _program(body.replace("BLOCK\n", block), f"y = {_CALL}", head)
    return Adversary(source, f"with {first}", "around the call", frozenset(found_by.split()))


def _logged(head: str, found_by: str, body: str = "return x * 2", calls: str = _CALL) -> Adversary:
    """A program with a message that counts as a library's, whose logger it has."""
    logger = "import logging\nimport sys\n\nLIBRARY = logging.Logger('library')\n"
    source = _program(f"LIBRARY.warning('few')\n{body}", calls, f"{logger}{head}")
    return Adversary(
        source,
        "LIBRARY.warning('few')",
        "leave out what the library logs",
        frozenset(found_by.split()),
        compiled=True,
        hints=(_IGNORED,),
        in_library=True,
    )


def _experts(expert: str, found_by: str, head: str = "") -> Adversary:
    """A mixture of experts whose loop runs over those that were chosen."""
    body = (
        "weights, index = torch.topk(x.softmax(-1), 2)\n"
        "mask = torch.nn.functional.one_hot(index, num_classes=4).permute(2, 1, 0)\n"
        "hit = (mask.sum(dim=(-1, -2)) > 0).nonzero()\nout = torch.zeros_like(x)\n"
        "for e in hit:\n    e = e[0]\n    choice, token = torch.where(mask[e])\n    state = x[token]\n"
        f"    state = {expert}\n    out.index_add_(0, token, state * weights[token, choice, None])\nreturn out"
    )
    title, marked = "each expert on all tokens", "(mask.sum(dim=(-1, -2)) > 0).nonzero()"
    return Adversary(_program(body, _CALL, head), marked, title, frozenset(found_by.split()))


def _ranges(result: str, found_by: str, head: str = "") -> Adversary:
    """Rows between bounds that tensors hold."""
    body = (
        "counts = torch.bincount(x[:, 0].abs().long().clamp(max=2), minlength=3)\n"
        "ends = counts.cumsum(0)\nout = torch.zeros_like(x)\nfor i in range(3):\n    start = ends[i] - counts[i]\n"
        f"    end = ends[i]\n    rows = x[start:end]\n    result = {result}\n    out[start:end] = result\nreturn out"
    )
    title = "compute all rows, and keep those between the bounds"
    return Adversary(_program(body, _CALL, head), "x[start:end]", title, frozenset(found_by.split()))


def _picked(rest: str, found_by: str, calls: str = _CALL, marked: str = "x[best]") -> Adversary:
    """A program that reads the row with the largest sum."""
    body = f"x = x * 1\nbest = x.sum(1).argmax()\n{rest}" if calls == _CALL else f"best = x.sum(1).argmax()\n{rest}"
    return replace(_change(body, marked, "give the index one dimension", found_by, calls), gb_id="GB0033")


def _segments(attention: str, found_by: str, head: str = "") -> Adversary:
    """Attention by segments, with a function of its own."""
    body = (
        "lengths = bounds[1:] - bounds[:-1]\n"
        "parts = [torch.split(each, lengths.tolist(), dim=2) for each in (x, x, x)]\n"
        "outs = [attend(q, k, v, attention_mask=None)[0] for q, k, v in zip(*parts)]\n"
        "out = torch.cat(outs, dim=2)\nreturn out"
    )
    lines = "".join(f"    {line}\n" for line in attention.splitlines())
    head = f"{head}\ndef attend(q, k, v, attention_mask=None):\n{lines}\n"
    source = _program(body, "call(torch.randn(1, 2, 5, 3), torch.tensor([0, 2, 5]))", head, "x, bounds")
    return Adversary(source, "lengths.tolist()", "all segments at once", frozenset(found_by.split()))


def _setup(test: str, effect: str, found_by: str) -> Adversary:
    """A function that looks as if it sets something up once."""
    head = (
        "import random\nimport threading\n\nLOCK, SEEN = threading.Lock(), []\n\n\n"
        f"def setup(key):\n    if {test}:\n        return\n    with LOCK:\n        {effect}\n\n"
    )
    source = _program("setup(1)\nreturn x * 2", f"for _ in range(3):\n    y = {_CALL}", head)
    return Adversary(source, "with LOCK", "`setup` while torch compiles", frozenset(found_by.split()), compiled=True)


def _made_of(statement: str, found_by: str) -> Adversary:
    """A function of an object that is called while torch compiles."""
    head = (
        "import random\n\nCOUNT = [0]\n\n\nclass Box:\n    n = 1\n\n\nBOX = Box()\n\n\n"
        f"def text(box):\n    made = copy.deepcopy(box)\n    {statement}\n    return made\n\n"
    )
    calls, title = f"for COUNT[0] in range(3):\n    y = {_CALL}", "call `text` while torch compiles"
    body = "return x * text(BOX).n"
    return _change(body, "copy.deepcopy(box)", title, found_by, calls, head, compiled=True)


def _operator(statement: str, found_by: str, before: str = "", calls: str = "") -> Adversary:
    """A function that becomes an operator of the graph."""
    head = (
        "SEEN = [1]\n\n\n"
        "def ids(grid):\n    found = []\n    for n in grid.tolist():\n"
        f"        {statement}\n        found.append(torch.arange(n))\n    return torch.cat(found)\n\n"
    )
    calls = calls or f"for _ in range(3):\n    y = {_CALL}"
    body, title = f"{before}return x * ids(torch.tensor([2, 3])).sum()", "run `ids` as one operator"
    return replace(_change(body, "grid.tolist()", title, found_by, calls, head, compiled=True), gb_id="GB0124")


def _placed(body: str, found_by: str) -> Adversary:
    """A number that is written to the places of a mask."""
    rows = (
        "class Rows:\n    def __init__(self):\n        self.seen = []\n\n"
        "    def __setitem__(self, index, value):\n        self.seen.append(index)\n\n"
    )
    marked = body[body.index("torch.where(") : body.index("] = 0")]
    return _change(f"{body}\nreturn y", marked, "write through the mask", found_by, head=rows)


def _masked_copy(body: str, found_by: str) -> Adversary:
    """Elements that are copied through a mask."""
    return replace(
        _change(f"{body}\ny[m] = z[m]\nreturn y * x", "z[m]", "copy through the mask", found_by), gb_id="GB0036"
    )


def _sizes(statement: str, found_by: str, result: str = "torch.stack(made)") -> Adversary:
    """A loop over sizes that the graph makes of constants."""
    body = (
        "sizes, made = torch.tensor([[2, 3], [4, 1]]), []\n"
        f"for h, w in sizes:\n    {statement}\n    made.append(x.sum() * torch.ones(h, w).sum())\nreturn {result}"
    )
    made = _change(body, "torch.ones(h, w)", "use the numbers of `sizes`", found_by, compiled=True)
    return replace(made, gb_id="GB0033")


def _message(check: str, found_by: str, text: str = "{n} rows") -> Adversary:
    """A check whose message has a number."""
    lines = "".join(f"    {line}\n" for line in check.splitlines())
    head = f"SEEN = []\n\n\ndef check(ok, text):\n{lines}\n"
    body = f'n = x.shape[0] + 0 * len(SEEN)\ncheck(n > 3, f"{text}")\nreturn x * 2'
    return _change(body, f'f"{text}"', "out of the check's message", found_by, head=head, compiled=True)


def _check(body: str, found_by: str, *, compiled: bool = True) -> Adversary:
    """A check of a tensor that becomes an operator."""
    calls = "try:\n    y = call(torch.randn(3, 4))\nexcept (RuntimeError, TypeError):\n    pass"
    marked = next(line.strip() for line in body.splitlines() if "_check_tensor" in line)
    return _change(body, marked, "`torch._assert_async`", found_by, calls, "SEEN = []\n\n", compiled=compiled)


def _flagged(rest: str, found_by: str, flag: str = "y.requires_grad = True") -> Adversary:
    """A value whose `requires_grad` is set."""
    body = f"y = x.detach() + 1\n{flag}\n{rest}"
    return _change(body, flag, "leave out", found_by, head="SEEN = []\n\n")


def _asserted(second: str, found_by: str) -> Adversary:
    """An `assert` of which the second condition is not computed where the first holds."""
    head = "SEEN = []\n\n\ndef count(x):\n    SEEN.append(1)\n    return x.abs().sum() + 1\n\n"
    return _change(f"assert x.shape[0] < 4 or {second}\nreturn x * 2", second, "as one tensor", found_by, head=head)


def _chance(rest: str, found_by: str, head: str) -> Adversary:
    """A random number that is compared with what need not be a probability."""
    return _change(f"p = torch.rand([])\n{rest}", "p < ", "where it is above 0", found_by, head=f"SEEN = []\n{head}\n")


def _written(write: str, found_by: str, head: str = "") -> Adversary:
    """A write through a mask that has no element in the program's calls."""
    body = f"y = x * 2\nbad = y > 100\nif bad.any():\n    {write}\nreturn y"
    return _change(body, "bad.any()", "write through", found_by, head=head)


def _chosen(far: str, found_by: str, near: str = "torch.ones(1)", before: str = "", head: str = "") -> Adversary:
    """A branch that chooses a buffer. One of its tensors is made once, where the branch is taken."""
    head += f"NET = torch.nn.Module()\nNET.near = {near}\nNET.register_buffer('scale', NET.near)\n"
    taken = f"if not hasattr(NET, 'far'):\n        NET.far = {far}\n    NET.register_buffer('scale', NET.far)"
    other = f"{before}NET.register_buffer('scale', NET.near)"
    body = f"if x.sum() > 0:\n    {taken}\nelse:\n    {other}\nreturn x * NET.scale"
    return _change(body, "x.sum() > 0", "choose the buffer", found_by, head=head)


def _property(getter: str, found_by: str, setter: str = "self.kept = value") -> Adversary:
    """A program whose compiled function reads a property that counts as a library's, and that can be set."""
    head = (
        "import logging\n\n\nclass Net:\n    kept, calls = None, 0\n\n    @property\n    def gain(self):\n"
        f"        if self.kept is not None:\n            return self.kept\n        {getter}\n\n"
        f"    @gain.setter\n    def gain(self, value):\n        {setter}\n\n\nNET = Net()\n\n\n"
        "class Step:\n    def __init__(self, call):\n        vars(self)['call'] = call\n\n"
        "    def __call__(self, x):\n        return self.call(x)\n\n"
        "    def __getattr__(self, name):\n        return getattr(NET, name)\n\n"
        "    def __setattr__(self, name, value):\n        setattr(NET, name, value)\n\n"
    )
    calls = "again = Step(call)\nfor _ in range(2):\n    y = again(torch.randn(3))"
    source = _program("NET.calls += 1\nreturn x * NET.gain", calls, head)
    found = frozenset(found_by.split())
    return Adversary(source, f"{getter}\n", "once, in front", found, function="Net.gain", in_library=True)


def _flag(body: str, found_by: str, check: str = "") -> Adversary:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    source = (
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n        self.twice = False\n\n    def forward(self, x):\n{lines}\n\n"
        "target = Net()\n\n\ndef made():\n    return torch.compile(target, backend='eager')\n\n\n"
        f"def run(call):\n    for target.twice in (False, True):\n        y = call(torch.randn(3))\n    {check}\n"
    )
    found = frozenset(found_by.split())
    return Adversary(
        source, "L['self'].twice", "compile two methods", found, values=("False", "True"), function="Net.forward"
    )


def _change(
    body: str,
    marked: str,
    title: str,
    found_by: str,
    calls: str = _CALL,
    head: str = "",
    arguments: str = "x",
    hints: tuple[str, ...] = (),
    compiled: bool = False,
) -> Adversary:
    source = _program(body, calls, head, arguments)
    return Adversary(source, marked, title, frozenset(found_by.split()), compiled, hints)


def _effect(body: str, found_by: str = "ends") -> Adversary:
    head = "COUNT, SEEN = [0], []\n\n"
    return _change(body, "x.sum().item()", "in the graph, by the function", found_by, head=head, compiled=True)


def _counts(values: str, found_by: str) -> Adversary:
    marked = "torch.bincount(t, minlength=4)"
    calls = f"for t in (torch.tensor([0, 3]), {values}):\n    call(torch.ones(1), t)"
    source = _program(f"return {marked}", calls, arguments="x, t")
    return Adversary(source, marked, "`bincount`", frozenset({found_by}))


def _within(body: str, enter: str, leave: str, found_by: str) -> Adversary:
    head = (
        f"FACTOR = [1]\n\n\nclass Context:\n    def __enter__(self):\n        {enter}\n\n"
        f"    def __exit__(self, *_):\n        {leave}\n\n\nCONTEXT = Context()\n\n"
    )
    source = _program(body, f"y = {_CALL}", head)
    return Adversary(source, "with CONTEXT", "around the call", frozenset(found_by.split()))


def _timer(last: str, head: str = "import time\n") -> Adversary:
    made = (
        "class Step:\n    def __init__(self, net, call):\n        self.net, self.step = net, call\n\n"
        "    def __call__(self, x):\n        return self.step(x)\n\n\n"
        "class Net:\n    seconds = 0.0\n\n\nNET = Net()\n\n"
    )
    body = f"began = time.perf_counter()\ny = x * 2\n{last}\nreturn y"
    source = _program(body, "recall = Step(NET, call)\ny = recall(torch.randn(3))", f"{head}\n{made}")
    found = "printed" if "print" in last else "mutations"
    return Adversary(source, "began = time.perf_counter()", "around the call", frozenset({found}))


def _size(body: str, found_by: str, head: str = "", sizes: str = "(3, 4)") -> Adversary:
    source = _program(body, f"for n in {sizes}:\n    x = torch.randn(n, 2)\n    y = call(x)", head)
    found = frozenset(found_by.split())
    return Adversary(source, "L['x'].size()[0]", "mark_dynamic", found, compiled=True, values=("3", "4"))


def _excluded(body: str, found_by: str, head: str = "") -> Adversary:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    excluded = f"{head}@torch.compiler.disable\ndef half(x):\n{lines}\n"
    source = _program("return half(x)", _CALL, excluded)
    return Adversary(source, "return half(x)", "remove", frozenset(found_by.split()), compiled=True)


def _split(rest: str, found_by: str, calls: str = _CALL) -> Adversary:
    body = f"kept = bytearray(2)\ntime.sleep(0)\n{rest}"
    made = "def made():\n    return torch.compile(target, backend='eager')\n\n"
    source = _program(body, calls, f"import inspect\nimport time\n\n{made}")
    return Adversary(source, "time.sleep(0)", "in front of what is compiled", frozenset(found_by.split()))


def _nested(rest: str, found_by: str, check: str = "") -> Adversary:
    lines = "".join(f"        {line}\n" for line in rest.splitlines())
    source = (
        'import time\nimport torch\n\n\ndef made():\n    def inner(x):\n        "Doubles."\n        time.sleep(0)\n'
        f"{lines}\n    return torch.compile(inner, backend='eager')\n\n\n"
        "target = getattr(made(), '_torchdynamo_orig_callable', None)\n\n\n"
        f"def run(call):\n    y = call(torch.randn(3))\n    {check}\n"
    )
    found = frozenset(found_by.split())
    return Adversary(source, "time.sleep(0)", "in front of what is compiled", found, function="made.<locals>.inner")


def _argument(body: str, found_by: str) -> Adversary:
    source = _program(body, "for n in range(3):\n    y = call(torch.randn(3), n)", arguments="x, n")
    return Adversary(source, "L['n']", "as a tensor", frozenset(found_by.split()), values=("0", "1"))


def _grown(body: str, found_by: str, first: str = "") -> Adversary:
    """A list that the program makes longer, and that the function stacks."""
    head = "MEMORY = []\n\n\ndef made():\n    return torch.compile(target, backend='eager')\n\n"
    calls = (
        f"{first}for _ in range(3):\n    MEMORY.append(torch.randn(2, requires_grad=True))\n"
        "    y = call(torch.randn(2), MEMORY)"
    )
    source = _program(body, calls, head, "x, memory")
    return Adversary(source, "L['memory']", "make one tensor", frozenset(found_by.split()), values=("1", "2"))


def _constant(body: str, marked: str, found_by: str) -> Adversary:
    head = (
        "import bisect\nimport heapq\n\nSEEN = []\n\n\ndef noted(n):\n    SEEN.append(n)\n    return n\n\n\n"
        "def loud(n):\n    print('n', n)\n    return n\n\n"
    )
    return _change(body, marked, "while torch compiles", found_by, head=head, compiled=True)


def _print(body: str, marked: str, title: str, head: str = "") -> Adversary:
    return Adversary(_program(body, "call(torch.randn(3))", head), marked, title, frozenset({"printed"}), compiled=True)


_NOTE = (
    "@torch.library.custom_op('adversary::note', mutates_args=())\n"
    "def note(x: torch.Tensor) -> torch.Tensor:\n    print('note')\n    return x.clone()\n\n"
    "note.register_fake(torch.empty_like)\n\n"
)
_AFTER, _WITHIN = "after the graph", "from within the graph"

ADVERSARIES = {
    # branches
    "a side draws a random number": _where(
        "y = x\nif x.sum() > 0:\n    y = x + 0 * torch.rand(())\nreturn y * 1", "random"
    ),
    "a side has a slope of NaN inside a helper": _where(
        "d = x.square().sum()\nif d > 0:\n    e = root(d)\nelse:\n    e = d * 2\nreturn e",
        "gradients",
        "d > 0",
        head="def root(d):\n    return d.sqrt()\n\n",
    ),
    "a side changes an argument": _where(
        "x = x.detach() if x.requires_grad else x\ny = x.sum()\nif y > 0:\n    x += 1\nreturn x * 1",
        "mutations",
        "y > 0",
    ),
    "a side returns the argument itself": _where("if x.sum() > 0:\n    return x\nreturn x * 2", "results"),
    "a side has another dtype": _where("y = x.sum()\nif y > 0:\n    y = y.double()\nreturn y", "results", "y > 0"),
    "a side raises for what the other takes": _where(
        "s = x.T @ x\nif s[0, 0] > 100:\n    y = root(s)\nelse:\n    y = s\nreturn y.sum()",
        "error results gradients",
        "s[0, 0] > 100",
        head="def root(s):\n    return torch.linalg.cholesky(s + 1e-3 * torch.eye(4))\n\n",
    ),
    "a side prints": _where(
        "y = x * 2\nif x.sum() > 0:\n    y = loud(y)\nreturn y",
        "printed",
        head="def loud(y):\n    print('loud')\n    return y + 1\n\n",
    ),
    "a side is never taken": _where(
        "if torch.ones(()) + 0 * x.detach().nan_to_num().sum() > 0:\n    x = x * 2\nreturn x * 1",
        "sides",
        "torch.ones(()) + 0 * x.detach().nan_to_num().sum() > 0",
    ),
    "a side's number of the object goes to the caller": _state(
        "if x.sum() > 0:\n    self.best = 1\nreturn x * 2, self.best", "x.sum() > 0", "results", "self.best = 0"
    ),
    "a side's attribute is an alias": _state(
        "y = x * 2\nif x.sum() > 0:\n    self.best = y\ny += 1\nreturn x * 3", "x.sum() > 0", "mutations"
    ),
    "a side's attribute has another type": _state(
        "if x.sum() > 0:\n    self.best = x.sum().double()\nreturn x * 3", "x.sum() > 0", "mutations"
    ),
    "a side's attribute counts how often it is set": _state(
        "if x.sum() > 0:\n    self.best = x.sum()\nreturn x * 3",
        "x.sum() > 0",
        "mutations",
        "self.sets = 0",
        "    @property\n    def best(self):\n        return torch.zeros(())\n\n"
        "    @best.setter\n    def best(self, _):\n        self.sets += 1\n\n",
    ),
    "a side's attribute is nothing at first": _state(
        "if x.sum() > 0:\n    self.best = x.sum()\nreturn x * 3", "x.sum() > 0", "ends", "self.best = None"
    ),
    "one of two names is the argument on a side": _cond("a = x * 3\nb = x * 4", "b = x", "results gradients"),
    "one of two names has no gradient on a side": _cond("a = x * 3\nb = x * 4", "b = x.detach() * 2", "results"),
    "one of two names is written to afterwards": _cond(
        "a = x * 3\nb = x * 4", "b = c", "mutations", "b += 1\nSEEN[0] = c.detach().sum()\n"
    ),
    "one of two values has another type": _cond("a = x * 3\nb = x.double()", "b = x * 2", "ends"),
    # numbers
    "the caller gets the number": _number("return x * 2, x.sum().item()", "x.sum().item()", "results"),
    "the number is kept": _number(
        "SEEN.append(x.sum().item())\nreturn x * 2", "x.sum().item()", "mutations", head="SEEN = []\n\n"
    ),
    "the number is beyond its tensor's type": _number(
        "return x / (x.max().item() * 2)", "x.max().item()", "results", "call(torch.arange(90, dtype=torch.uint8))"
    ),
    "the number's division by zero is handled": _number(
        "return x / (1 / m.sum().item())",
        "m.sum().item()",
        "error",
        "for m in (torch.ones(3), torch.zeros(3)):\n    try:\n        call(torch.randn(3), m)\n"
        "    except ZeroDivisionError:\n        pass",
        arguments="x, m",
    ),
    # conditional_effects
    "an exception is handled in the function": _change(
        "try:\n    if x.sum() > 0:\n        raise ValueError('a')\nexcept ValueError:\n    x = x * 3\nreturn x * 2",
        "x.sum() > 0",
        "raise on the condition",
        "error",
        compiled=True,
    ),
    "what is kept before an exception is lost": _change(
        "SEEN.append(x.shape)\nif x.sum() > 0:\n    raise ValueError('a')\nreturn x * 2",
        "x.sum() > 0",
        "raise on the condition",
        "mutations",
        "for x in (torch.ones(3), -torch.ones(3)):\n    try:\n        call(x)\n    except ValueError:\n        pass",
        head="SEEN = []\n\n",
        compiled=True,
    ),
    "a function prints on a side": _side(
        "y = x\nif x.sum() > 0:\n    print('first')\n    y = loud(y)\nreturn y * 2", "printed"
    ),
    "the length of what a side keeps is read behind": _side(
        "y = x\nif x.sum() > 0:\n    SEEN.append(2.0)\n    y = y * 2\nreturn y * len(SEEN)",
        "results gradients",
        calls="call(torch.ones(3, requires_grad=True))",
    ),
    "an argument changes behind an exception": _side(
        "if x.sum() > 0:\n    raise ValueError('a')\nx.add_(1)\nreturn x * 2",
        "mutations error",
        "raise on the condition in a function of its own, which torch calls after",
        "for x in (torch.ones(3), -torch.ones(3)):\n    try:\n        call(x)\n    except ValueError:\n        pass",
    ),
    "numbers are drawn behind an exception": _side(
        "if x.sum() > 0:\n    raise ValueError('a')\nreturn x * torch.rand(3)",
        "random results error",
        "raise on the condition in a function of its own, which torch calls after",
        "for x in (torch.ones(3), -torch.ones(3)):\n    try:\n        call(x)\n    except ValueError:\n        pass",
    ),
    # object_effects
    "a method reads what a side counts": _object(
        "if x.sum() > 0:\n    self.count += 1\nreturn x * self.counted()",
        "results gradients",
        "    def counted(self):\n        return self.count\n\n",
    ),
    "a side shows what was changed just before": _object(
        "self.calls[0] += 1\nif x.sum() > 0:\n    self.count += 1\n    print('call', self.calls[0])\nreturn x * 2",
        "printed",
        "    calls = [0]\n\n",
    ),
    "the length of what the object keeps is read behind": _object(
        "if x.sum() > 0:\n    self.seen.append(1.0)\nreturn x * len(self.seen)", "results gradients"
    ),
    # rotations
    "a class keeps its rotations": _rotation(
        "def rotate(self, n):\n    super().rotate(n)\n    TURNS.append(n)", "mutations"
    ),
    "a class rotates to the other side": _rotation(
        "def rotate(self, n):\n    super().rotate(-n)", "results gradients mutations"
    ),
    "a class prints what leaves": _rotation("def pop(self):\n    print('left')\n    return super().pop()", "printed"),
    # outer_contexts
    "a context sets what the rest of the function reads": _within(
        "y = x * FACTOR[0]\nwith CONTEXT:\n    y = y + x * FACTOR[0]\nreturn y",
        "FACTOR[0] = 2",
        "FACTOR[0] = 1",
        "results mutations gradients",
    ),
    "a context prints": _within("with CONTEXT:\n    y = x * 2\nreturn y", "print('in')", "print('out')", "printed"),
    "a context leaves something behind": _within(
        "with CONTEXT:\n    y = x * 2\nreturn y", "FACTOR[0] = 2", "FACTOR[0] = 3", "mutations"
    ),
    "a context ignores a warning of the rest": _library(
        "warnings.catch_warnings()\nwarnings.simplefilter('ignore')",
        "BLOCK\nif x.shape[0] > 4:\n    warnings.warn('many')\nreturn y",
        "printed",
    ),
    "a context makes a warning of the rest an error": _library(
        "warnings.catch_warnings()\nwarnings.simplefilter('error')",
        "BLOCK\nif x.shape[0] > 4:\n    warnings.warn('many')\nreturn y",
        "error",
    ),
    "a context forgets the numbers that the rest draws": _library(
        "torch.random.fork_rng()", "BLOCK\nreturn y * torch.rand(4)", "random"
    ),
    "a context has no gradients": _library("torch.no_grad()", "BLOCK\nreturn y * x", "results gradients"),
    "a context takes what the rest prints": _library(
        "contextlib.redirect_stdout(None)", "BLOCK\nprint('done')\nreturn y", "printed"
    ),
    # timers
    "the call prints its time": _timer("print('ms', 1e3 * (time.perf_counter() - began) < 0)"),
    "the call keeps its times": _timer("TIMES.append(time.perf_counter() - began)", "import time\n\nTIMES = []\n"),
    "the clock is the program's own": _timer(
        "NET.seconds += time.perf_counter() - began",
        "class Clock:\n    now = 0\n\n    def perf_counter(self):\n        self.now += 1\n        return self.now\n\n\n"
        "time = Clock()\n",
    ),
    # mask_indices
    "a mask has no dimensions": _placed("y = x * 2\ny[torch.where(x.sum() > -99)] = 0", "results gradients"),
    "a mask is shorter than what is written to": _placed("y = x * 2\ny[torch.where(x[:2] > 0)] = 0", "ends"),
    "what is written to keeps its indices": _placed(
        "y = Rows()\ny[torch.where(x > 0)] = 0\ny = x * len(y.seen[0])", "results gradients"
    ),
    # mask_copies
    "one element is copied to a whole row": _masked_copy(
        "m = torch.arange(3) == 1\nx = x[:, :3]\ny, z = x * 1, x.sum(1)", "results gradients"
    ),
    "a copy of another type raises": _masked_copy("m = x > 0\nz = x\ny = torch.zeros(x.shape)", "error"),
    "what is written to repeats its memory": _masked_copy(
        "m = x > 0\nz = x.detach()\ny = torch.zeros(x.shape[0], 1).expand(x.shape)", "ends"
    ),
    # copies
    "a shallow copy is written to": _change(
        "y = copy.copy(x)\ny.add_(1)\nreturn y * 2",
        "copy.copy(x)",
        "clone()",
        "mutations error",
        "call(torch.randn(3))",
    ),
    "a copy keeps the gaps of a view": _change(
        "return copy.deepcopy(x)", "copy.deepcopy(x)", "clone()", "results gradients", "call(torch.randn(4, 6)[:, ::2])"
    ),
    "a copy stays a parameter": _change(
        "y = copy.deepcopy(WEIGHT)\nreturn x * (2 if isinstance(y, torch.nn.Parameter) else 3)",
        "copy.deepcopy(WEIGHT)",
        "clone()",
        "results gradients",
        head="WEIGHT = torch.nn.Parameter(torch.ones(3))\n\n",
    ),
    # effects
    "what is kept has a gradient": replace(
        _change(
            "SEEN.append((x.sum().item(), x * WEIGHT))\nreturn x * WEIGHT",
            "x.sum().item()",
            "in the graph, by the function",
            "mutations",
            head="SEEN, WEIGHT = [], torch.ones((), requires_grad=True)\n\n",
            compiled=True,
        ),
        backend="aot_eager",
    ),
    "the length is read behind": _effect("SEEN.append(x.sum().item())\nreturn x * len(SEEN)", "results gradients"),
    "what is kept was changed just before": _effect(
        "COUNT[0] += 1\nSEEN.append((COUNT[0], x.sum().item()))\nreturn x * 2", "mutations"
    ),
    "the length is read behind what is called after the graph": _change(
        "SEEN.append(x.sum().item())\nreturn x * len(SEEN)",
        "x.sum().item()",
        "`append` after the graph",
        "results gradients",
        head="SEEN = []\n\n",
        compiled=True,
    ),
    "what a function notes is read behind it": _change(
        "watch(x)\nreturn x * len(SEEN)",
        "x.sum().item()",
        "run `watch` in the graph",
        "results gradients",
        head="SEEN = []\n\n\ndef watch(x):\n    n = x.sum().item()\n    SEEN.append(n)\n\n",
        compiled=True,
    ),
    # effects_behind
    "the function reads what it keeps": _behind("return x * len(self.seen)", "results gradients"),
    "the function raises behind what it keeps": _behind(
        "if x.shape[0] == 3:\n    raise ValueError('three')\nreturn x * 2", "mutations"
    ),
    "the program asks for the compiled model behind which it keeps": _behind(
        "return x * 2", "ends", check="assert type(made()).__name__ == 'OptimizedModule'"
    ),
    "a method reads what a side counts behind the call": _counted_behind("results gradients"),
    # kept_numbers
    "a method reads the number that is kept behind the call": _kept(
        "return x * self.doubled()", "results gradients", "def doubled(self):\n    return self.last * 2"
    ),
    "the number is kept behind an exception": _kept(
        "if x.shape[0] == 3:\n    raise ValueError('three')\nreturn x * 2", "mutations"
    ),
    "the program asks for the compiled model behind which it keeps a number": _kept(
        "return x * 2", "ends", check="assert type(made()).__name__ == 'OptimizedModule'"
    ),
    # grown_lists
    "tensors are stacked without gradients": _grown(
        "with torch.no_grad():\n    bank = torch.stack(memory)\nreturn (bank * x).sum(0)", "results gradients"
    ),
    "the list is empty where it is not stacked": _grown(
        "if x.shape[0] == 3:\n    return x\nbank = torch.stack(memory)\nreturn bank.sum(0) + x",
        "ends",
        "call(torch.randn(3), [])\n",
    ),
    "the function handles tensors that cannot be stacked": _grown(
        "try:\n    bank = torch.stack(memory)\nexcept RuntimeError:\n    return x\nreturn bank.sum(0) + x",
        "ends",
        "call(torch.randn(2), [torch.ones(2), torch.ones(3)])\n",
    ),
    # counts
    "a value is as large as the least length": _counts("torch.tensor([0, 1, 4])", "ends"),
    "values are of a small type": _counts("torch.tensor([0, 1, 3], dtype=torch.int32)", "results"),
    "values are bytes": _counts("torch.tensor([0, 1, 3], dtype=torch.uint8)", "ends"),
    # numpy_calls
    "NumPy takes edges that fall": _change(
        "return torch.from_numpy(np.digitize(x.numpy(), [1.0, 0.0, -1.0]))",
        "np.digitize(x.numpy(), [1.0, 0.0, -1.0])",
        "torch.bucketize",
        "results error",
        "call(torch.randn(9))",
    ),
    "NumPy computes in float64": _change(
        "return torch.from_numpy(np.asarray(np.nanmean(x.numpy())))",
        "np.nanmean(x.numpy())",
        "torch.nanmean",
        "ends",
        "call(torch.arange(9))",
    ),
    "the caller gets a number of NumPy's": _change(
        "return x * 2, np.nansum(x.numpy())",
        "np.nansum(x.numpy())",
        "torch.nansum",
        "results error",
        "call(torch.randn(9))",
    ),
    # size_checks
    "a bound counts from the end": _change(
        "n = int(t.max().item())\nreturn x[:, :n] * 2",
        "t.max().item()",
        "check that the number is not negative",
        "ends",
        "call(torch.randn(3, 4), torch.tensor([-1]))",
        arguments="x, t",
        hints=(_SCALARS,),
    ),
    "a bound below zero means all": _change(
        "n = int(t.max().item())\nreturn x * 2 if n < 0 else x[:, :n] * 2",
        "t.max().item()",
        "check that the number is not negative",
        "error",
        "call(torch.randn(3, 4), torch.tensor([-1, 2]))",
        arguments="x, t",
        hints=(_SCALARS,),
    ),
    "a bound is negative for other values": _change(
        "return x[:, : int(x.sum())] * 2",
        "int(x.sum())",
        "check that the number is not negative",
        "error",
        "call(torch.ones(3, 4))",
        hints=(_SCALARS,),
    ),
    # splits
    "the program asks for the function in what is compiled": _split(
        "return x * len(kept)", "ends", f"{_CALL}\nassert made()._torchdynamo_orig_callable is globals()['target']"
    ),
    "a function asks for its own parameters": _split(
        "return x * len(kept) * len(inspect.signature(globals()['target']).parameters)", "results gradients"
    ),
    "the program asks for the name of what it compiles": _split(
        "return x * len(kept)", "ends", f"{_CALL}\nassert made().__name__ == 'target'"
    ),
    "the program asks for the compiled model": _method(
        "return x * 2", "ends", "assert type(made()).__name__ == 'OptimizedModule'"
    ),
    "a method computes with its own code": _method(
        "return x * len(type(self).forward.__code__.co_names)", "results gradients"
    ),
    "a method prints its own name": _method("print(sys._getframe().f_code.co_name)\nreturn x * 2", "printed"),
    "the program asks an inner function for what is compiled": _nested(
        "return x * 2", "ends", "assert made()._torchdynamo_orig_callable"
    ),
    "the program asks for the name of an inner function": _nested(
        "return x * 2", "ends", "assert made().__name__ == 'inner'"
    ),
    "the program shows what an inner function is for": _nested(
        "return x * 2", "ends", "assert 'Doubles' in made().__doc__"
    ),
    # number_arguments, number_attributes
    "the argument comes back": _argument("return x * n, n", "results"),
    "the argument is larger than an integer of torch": _argument("return x * float(n * 10**12 * 10**9)", "results"),
    "the argument's type decides": _argument("return x * (2 if isinstance(n, int) else 3)", "results gradients"),
    "the attribute is a key": _attribute("self.seen[self.calls] = 1\nreturn x * self.calls", "mutations"),
    "the attribute is returned": _attribute("return x, self.calls", "results"),
    "the attribute is printed": _attribute("print('calls', repr(self.calls))\nreturn x * self.calls", "printed"),
    "the program asks whether integers become symbols": _attribute(
        f"return x * (2 if {_SYMBOLS} else 3) * self.calls", "results gradients", "and `torch"
    ),
    "the program prints whether integers become symbols": _attribute(
        f"print({_SYMBOLS})\nreturn x * self.calls", "printed", "and `torch"
    ),
    "the program does not go with symbols for integers": _attribute(
        f"assert not {_SYMBOLS}\nreturn x * self.calls", "ends", "and `torch"
    ),
    # two_functions
    "the program asks what it compiled": _flag(
        "return x * (2 if self.twice else 1)", "ends", "assert type(made()).__name__ == 'OptimizedModule'"
    ),
    "the method computes with its own code": _flag(
        "return x * len(type(self).forward.__code__.co_names) * (2 if self.twice else 1)", "results gradients"
    ),
    "the method prints its own code": _flag(
        "print(len(type(self).forward.__code__.co_names))\nreturn x * (2 if self.twice else 1)", "printed"
    ),
    # printing
    "what is printed changes afterwards": _print("print('x', x)\nx.add_(1)\nreturn x * 2", "print('x', x)", _AFTER),
    "a view of what is printed changes afterwards": _print(
        "print('x', x[0])\nx.mul_(2)\nreturn x.clone()", "print('x', x[0])", _AFTER
    ),
    "a line of another comes first": _print("print('first')\nreturn note(x)", "print('first')", _AFTER, _NOTE),
    "a number that is shown is a truth": _change(
        "y = x * 2\nwarnings.warn(f'{n} rows')\nreturn y",
        "warnings.warn(f'{n} rows')",
        _WITHIN,
        "printed",
        "call(torch.randn(3), True)",
        "import warnings\n\nwarnings.showwarning = lambda message, *_, **__: print(message)\n"
        "warnings.simplefilter('always')\n\n",
        "x, n: int",
        compiled=True,
    ),
    "what is warned of is counted behind it": _change(
        "y = x * 2\nwarnings.warn('two')\nreturn y * SEEN[0]",
        "warnings.warn('two')",
        _WITHIN,
        "results gradients",
        head="import warnings\n\nSEEN = [0]\n\n\ndef note(*args, **kwargs):\n    SEEN[0] += 1\n\n\n"
        "warnings.showwarning = note\nwarnings.simplefilter('always')\n\n",
        compiled=True,
    ),
    "a message on a condition shows what changes afterwards": _print(
        "if x.sum() > 0:\n    print('x', x)\nx.add_(1)\nreturn x * 2", "x.sum() > 0", "function of its own"
    ),
    "a message on a condition shows a view that changes afterwards": _print(
        "if x.sum() < 99:\n    print('first', x[0])\nx.mul_(2)\nreturn x.clone()", "x.sum() < 99", "function of its own"
    ),
    "a message on a condition comes before that of another": _print(
        "if x.sum() < 99:\n    print('first')\nreturn note(x)", "x.sum() < 99", "function of its own", _NOTE
    ),
    # python_calls
    "a constant is of a tensor's value": _constant(
        "return x * bisect.bisect([0.0, 1.0], x.sum())", "bisect.bisect([0.0, 1.0], x.sum())", "results gradients"
    ),
    "a constant is of what a function notes": _constant(
        "return x * heapq.nlargest(1, [1, 2], key=noted)[0]", "heapq.nlargest(1, [1, 2], key=noted)", "mutations"
    ),
    "a constant is of what a function prints": _constant(
        "return x * heapq.nlargest(1, [1, 2], key=loud)[0]", "heapq.nlargest(1, [1, 2], key=loud)", "printed"
    ),
    # requested_breaks
    "an excluded function asks whether it is compiled": _excluded(
        "return x / (1 if torch.compiler.is_compiling() else 2)", "results gradients"
    ),
    "an excluded function asks whether Dynamo traces it": _excluded(
        "return x / (1 if torch.compiler.is_dynamo_compiling() else 2)", "results gradients"
    ),
    "an excluded function handles an error that tracing does not raise": _excluded(
        "try:\n    return x * float(x.numpy().size)\nexcept RuntimeError:\n    return x * 2", "results gradients"
    ),
    # uniform_bounds
    "the bounds draw numbers in their order": _change(
        "return x * torch.zeros(3, 4).uniform_(**{'to': 1 + random.random(), 'from': random.random()})",
        "torch.zeros(3, 4).uniform_(**{'to': 1 + random.random(), 'from': random.random()})",
        "by position",
        "results gradients",
        head="import random\n\n",
    ),
    "a bound prints": _change(
        "return x * torch.zeros(3, 4).uniform_(**{'to': loud(1.0), 'from': loud(0.0)})",
        "torch.zeros(3, 4).uniform_(**{'to': loud(1.0), 'from': loud(0.0)})",
        "by position",
        "printed",
        head="def loud(bound):\n    print(bound)\n    return bound\n\n",
    ),
    "a class of the user's has the bounds in another order": _change(
        "return x * NOISE.uniform_(**{'from': 0.5, 'to': 1.0})",
        "NOISE.uniform_(**{'from': 0.5, 'to': 1.0})",
        "by position",
        "ends",
        head="class Noise:\n    def uniform_(_, to, **m):\n        return to - m['from']\n\n\nNOISE = Noise()\n\n",
    ),
    # library_properties
    "a property changes from call to call": _property("return self.calls", "results mutations"),
    "a property prints": _property("return print('gain') or 2", "printed mutations"),
    "a property that is set counts": _property("return 2 + self.calls - self.calls", "mutations", "self.calls += 100"),
    # config_lines
    "the program asks for the setting": _change(
        "n = x.detach().sum().item()\nreturn x * (2 if torch._dynamo.config.capture_scalar_outputs else 3) * n",
        "x.detach().sum().item()",
        "set `torch._dynamo.config.capture_scalar_outputs",
        "results gradients",
        hints=(_SCALARS,),
    ),
    "the program prints the setting": _change(
        "n = x.detach().sum().item()\nprint(torch._dynamo.config.capture_scalar_outputs)\nreturn x * n",
        "x.detach().sum().item()",
        "set `torch._dynamo.config.capture_scalar_outputs",
        "printed",
        hints=(_SCALARS,),
    ),
    "the program does not go with the setting": _change(
        "n = x.detach().sum().item()\nassert not torch._dynamo.config.capture_scalar_outputs\nreturn x * n",
        "x.detach().sum().item()",
        "set `torch._dynamo.config.capture_scalar_outputs",
        "ends",
        hints=(_SCALARS,),
    ),
    "the message is shown": _logged(f"LIBRARY.addHandler({_SHOWN})\n\n", "printed"),
    "a handler keeps the message": _logged(
        "SEEN = []\n\n\nclass Kept(logging.Handler):\n    def emit(self, record):\n        SEEN.append(record.msg)\n\n"
        "LIBRARY.addHandler(Kept())\n\n",
        "mutations",
        "return x * 2 + 0 * len(SEEN)",
    ),
    "a handler makes the message an error": _logged(
        "class Strict(logging.Handler):\n    def emit(self, record):\n        raise ValueError(record.msg)\n\n\n"
        "LIBRARY.addHandler(Strict())\n\n",
        "error",
        "return x * 2",
        f"try:\n    {_CALL}\nexcept ValueError:\n    pass",
    ),
    "the setting is for the program's messages too": _logged(
        f"OWN = logging.Logger('own')\nOWN.addHandler({_SHOWN})\nLIBRARY.addHandler(logging.NullHandler())\n\n",
        "printed",
        "if x.shape[0] > 4:\n    OWN.warning('many')\nreturn x * 2",
    ),
    # row_ranges
    "rows are looked at together": _ranges("rows - rows.sum(0)", "results"),
    "rows draw random numbers": _ranges("torch.nn.functional.dropout(rows)", "results gradients random"),
    "rows are counted": _ranges(
        "count(rows)",
        "mutations",
        "SEEN = [0]\n\n\ndef count(rows):\n    SEEN[0] += rows.shape[0]\n    return rows * 2\n\n\n",
    ),
    # number_indices
    "a row is written to later": _picked("row = x[best]\nrow *= 3\nreturn x * 2", "results gradients"),
    "the caller writes to the row": _picked("return x[best]", "results", "x = torch.randn(3, 4)\ncall(x)[0] = 7.0"),
    "the index is a number at times": _picked(
        "return x[best if x.sum() > 100 else 0] + x[best]",
        "ends",
        "call(torch.ones(3, 4))",
        "x[best if x.sum() > 100 else 0]",
    ),
    # expert_loops
    "an expert looks at its tokens together": _experts("state - state.mean(0)", "results gradients"),
    "an expert draws random numbers": _experts("torch.nn.functional.dropout(state)", "results gradients random"),
    "an expert counts its calls": _experts(
        "kept(state)", "mutations", "SEEN = []\n\n\ndef kept(x):\n    SEEN.append(len(SEEN))\n    return x\n\n"
    ),
    # segment_attention
    "attention does not read its mask": _segments(
        "return ((q @ k.transpose(-1, -2)).softmax(-1) @ v,)", "results gradients"
    ),
    "attention depends on how long a segment is": _segments(
        "scores = q @ k.transpose(-1, -2) * q.shape[2]\n"
        "scores = scores if attention_mask is None else scores + attention_mask\nreturn (scores.softmax(-1) @ v,)",
        "results gradients",
    ),
    "attention counts its calls": _segments(
        "SEEN.append(len(SEEN))\nscores = q @ k.transpose(-1, -2)\n"
        "scores = scores if attention_mask is None else scores + attention_mask\nreturn (scores.softmax(-1) @ v,)",
        "mutations",
        "SEEN = []\n",
    ),
    "an elif is asked where the first side is taken": _where(
        "y, z = x, x\nif x.abs().sum() >= 0:\n    y = x * 2\n    z = x\nelif EMPTY[0]:\n    y = x * 3\nreturn y + z",
        "ends",
        "x.abs().sum() >= 0",
        "EMPTY = []\n\n",
    ),
    # assertions
    "the second condition needs the first": _asserted("x[3].sum() > 0", "ends"),
    "the second condition has no value without the first": _asserted("1 / (x.shape[0] - 3) > x.sum()", "ends"),
    "the second condition counts": _asserted("count(x) > 0", "mutations"),
    # setups
    "a setup is made on each call": _setup("key in ()", "SEEN.append(key)", "mutations"),
    "a setup prints on each call": _setup("key in ()", "print('set up')", "printed"),
    "a setup draws a number": _setup("key in SEEN", "SEEN.append(key + 0 * random.random())", "random"),
    # object_copies
    "what is made of an object depends on a global": _made_of("made.n += COUNT[0]", "results gradients"),
    "making something of an object draws a number": _made_of("made.n = 2 + 0 * random.random()", "random"),
    "making something of an object prints": _made_of("print('made')", "printed"),
    # python_operators
    "an operator's function counts its calls": _operator("SEEN[0] += 1", "mutations"),
    "an operator's function prints": _operator("print(n)", "printed"),
    "an operator reads what the call has changed": _operator(
        "n += SEEN[0]", "results gradients", "SEEN[0] = SEEN[0] % 3 + 1\n"
    ),
    # known_numbers
    "a size is written to": _sizes("h += 1", "results", "torch.stack(made), sizes"),
    "a size is returned": _sizes("n = h * w", "results", "torch.stack(made), n"),
    "a size is divided in float32": _sizes("made.append(x.sum().double() * (h / 3))", "results gradients"),
    # check_messages
    "a check keeps its message": _message("SEEN.append(text)", "mutations"),
    "a check prints its message": _message("print(text)", "printed"),
    "the message of a check counts": _message("return", "mutations", "{SEEN.append(n)}"),
    # tensor_checks
    "a failed check is caught": _check(
        "try:\n    torch._check_tensor_all(x > 0)\nexcept RuntimeError:\n    return x * 0\nreturn x * 2", "error"
    ),
    "the message of a check has an effect": _check(
        "try:\n    torch._check_tensor_all(x > 0, lambda: SEEN.append(1) or 'no')\n"
        "except RuntimeError:\n    pass\nreturn x * 2",
        "mutations",
        compiled=False,
    ),
    "a check refuses what is not true or false": _check("torch._check_tensor_all(x)\nreturn x * 2", "error"),
    # gradient_flags
    "a value with a gradient is returned": _flagged("return y * 2", "results gradients"),
    "a value is asked whether it has a gradient": _flagged(
        "return x * (2 if y.requires_grad else 3)", "results gradients"
    ),
    "a value that was asked for a gradient is returned": _flagged(
        "return y * 2", "results gradients", "y.requires_grad_()"
    ),
    "an argument is asked for a gradient": _flagged("return y", "mutations", "x.requires_grad_()"),
    "a gradient of the value is asked for": _flagged("return torch.autograd.grad((y * y).sum(), y)[0]", "ends"),
    # chances
    "the random number is moved": _chance(
        "p -= 1\nif p < LIMIT:\n    return x * 0\nreturn x", "results gradients", "LIMIT = 0.0\n"
    ),
    "the probability counts what it is compared with": _chance(
        "if p < LIMIT:\n    return x * 0\nreturn x",
        "mutations",
        "class Limit:\n    def __gt__(self, other):\n        SEEN.append(1)\n        return True\n\n\n"
        "LIMIT = Limit()\n",
    ),
    "the probability is another one each time": _chance(
        "if p < BOX.limit:\n    return x * 0\nreturn x",
        "results gradients mutations",
        "class Box:\n    @property\n    def limit(self):\n        SEEN.append(1)\n"
        "        return len(SEEN) % 2 * 9\n\n\nBOX = Box()\n",
    ),
    # buffer_choices
    "what is made once is counted": _chosen(
        "BOX.value()",
        "mutations",
        head="class Box:\n    n = 0\n\n    def value(self):\n        self.n += 1\n        return torch.ones(1)\n\n\n"
        "BOX = Box()\n",
    ),
    "a tensor is moved to the dtype of the argument": _chosen(
        "torch.ones(1) * 2", "mutations", "torch.ones(1, dtype=torch.float64)", "NET.near = NET.near.to(x.dtype)\n    "
    ),
    "the tensors have other sizes": _chosen("torch.ones(4) * 2", "error results gradients mutations"),
    # masked_writes
    "the value does not fit where nothing is written": _written("y[bad] = torch.zeros(5)", "ends"),
    "what is written to is a leaf with a gradient": _written(
        "LEAF[bad] = 0.0", "ends", "LEAF = torch.nn.Parameter(torch.ones(3, 4))\n\n"
    ),
    "the value counts how often it is asked for": _written(
        "y[bad] = BOX.value()",
        "mutations",
        "class Box:\n    n = 0\n\n    def value(self):\n        self.n += 1\n        return self.n\n\n\n"
        "BOX = Box()\n\n",
    ),
    # dynamic_sizes
    "a loop needs the number of rows": _size(
        "y = x[0]\nfor row in x.unbind(0):\n    y = y * row.sin()\nreturn y", "ends"
    ),
    "a loop runs once for each row": _size("for _ in range(x.shape[0]):\n    x = x.sin()\nreturn x", "ends"),
    "a side needs the number of rows": _size("return x * 2 if x.shape[0] == 3 else x.sin()", "ends"),
}
