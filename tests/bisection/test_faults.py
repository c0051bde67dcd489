"""Faults planted in real architectures: the verdict names exactly what is at fault."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.bisection.conftest import Bisected

pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

# Without caches: their keys know nothing of a lowering that a program replaces.
HEAD = """
import os
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import torch
import torch._inductor.config as inductor
import torch._inductor.lowering as L
from torch._inductor.virtualized import V
inductor.fx_graph_cache = False
aten = torch.ops.aten
torch.manual_seed(0)

def plant(op, change, where=lambda graph: True):
    inner = L.lowerings[op]
    def lowering(*args, **kwargs):
        out = inner(*args, **kwargs)
        return change(out) if where(V.graph) else out
    L.lowerings[op] = lowering

def times(factor):
    return lambda out: L.lowerings[aten.mul.Tensor](out, factor)
"""
MODELS = {
    "bert": """
from transformers import BertConfig, BertModel
model = BertModel(BertConfig(vocab_size=99, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
                             intermediate_size=37, max_position_embeddings=64)).eval()
ids = torch.randint(5, 99, (2, 12))
inputs, pick = {"input_ids": ids}, lambda out: out.pooler_output
""",
    "gpt2": """
from transformers import GPT2Config, GPT2Model
model = GPT2Model(GPT2Config(vocab_size=99, n_embd=32, n_layer=1, n_head=4, n_positions=64)).eval()
ids = torch.randint(5, 99, (2, 12))
inputs, pick = {"input_ids": ids, "use_cache": False}, lambda out: out.last_hidden_state
""",
    "llama": """
from transformers import LlamaConfig, LlamaModel
model = LlamaModel(LlamaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
                               num_key_value_heads=2, intermediate_size=37, max_position_embeddings=64)).eval()
ids = torch.randint(5, 99, (2, 12))
inputs, pick = {"input_ids": ids, "use_cache": False}, lambda out: out.last_hidden_state
""",
    "vit": """
from transformers import ViTConfig, ViTModel
model = ViTModel(ViTConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=37,
                           image_size=32, patch_size=8)).eval()
inputs, pick = {"pixel_values": torch.randn(2, 3, 32, 32)}, lambda out: out.last_hidden_state
""",
    "opt": """
from transformers import OPTConfig, OPTModel
model = OPTModel(OPTConfig(vocab_size=99, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, ffn_dim=37,
                           max_position_embeddings=64, word_embed_proj_dim=32)).eval()
ids = torch.randint(5, 99, (2, 12))
inputs, pick = {"input_ids": ids, "use_cache": False}, lambda out: out.last_hidden_state
""",
}
FORWARD = """
compiled = torch.compile(model)
with torch.no_grad():
    torch.testing.assert_close(pick(compiled(**inputs)), pick(model(**inputs)), rtol=1e-3, atol=1e-3)
"""
GRADIENTS = """
def gradients(network):
    model.zero_grad(set_to_none=True)
    pick(network(**inputs)).pow(2).mean().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]

torch.testing.assert_close(gradients(torch.compile(model)), gradients(model), rtol=1e-3, atol=1e-5)
"""
SHAPES = """
compiled = torch.compile(model, dynamic={dynamic})
with torch.no_grad():
    for length in (12, 9, 7, 5):
        ids = torch.randint(5, 99, (2, length))
        torch.testing.assert_close(pick(compiled(ids)), pick(model(ids)), rtol=1e-3, atol=1e-5)
"""
SYMBOLIC = """
def symbolic(graph):
    return any(isinstance(node.meta.get("val"), torch.SymInt) for node in graph.module.graph.nodes)
"""
THIRD = """
def third(graph):
    from torch._guards import CompileContext
    return str(CompileContext.current_compile_id()).endswith("/2")
"""
TOGETHER = """
met = set()
def first(out):
    met.add(id(V.graph))
    return out
def second(out):
    return times(1.5)(out) if id(V.graph) in met else out
plant(aten.erf.default, first)
plant(aten.tanh.default, second)
"""
PATTERN = """
import torch._inductor.fx_passes.post_grad as post_grad
from torch._inductor.pattern_matcher import CallFunction, KeywordArg, register_graph_pattern

@register_graph_pattern(CallFunction(aten.tanh.default, KeywordArg("x")), pass_dict=post_grad.pass_patterns[1])
def tanh_to_sigmoid(match, x):
    node = match.output_node()
    with match.graph.inserting_before(node):
        new = match.graph.call_function(aten.sigmoid.default, (x,))
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    match.graph.erase_node(node)
"""
PASS = """
from torch._inductor.custom_graph_pass import CustomGraphPass
class Swap(CustomGraphPass):
    def __call__(self, graph):
        for node in graph.nodes:
            if node.target is aten.tanh.default:
                node.target = aten.sigmoid.default
    def uuid(self):
        return b"swap"
"""
PRE_GRAD = """
def swap(graph):
    for node in graph.nodes:
        if node.target is torch.nn.functional.silu:
            node.target, node.kwargs = torch.nn.functional.gelu, {}
inductor.pre_grad_custom_pass = swap
"""
BACKEND = """
from torch._inductor.compile_fx import compile_fx
def tidy(gm):
    gm.graph.eliminate_dead_code()
    return gm
def swap(gm):
    for node in gm.graph.nodes:
        if node.target is torch.nn.functional.silu:
            node.target, node.kwargs = torch.nn.functional.gelu, {}
    gm.recompile()
    return gm
def backend(gm, inputs):
    return compile_fx(swap(tidy(gm)), inputs)
compile = torch.compile
torch.compile = lambda model: compile(model, backend=backend)
"""
DECOMPOSITION = """
from torch._inductor.decomposition import decompositions
decompositions[aten.gelu.default] = lambda x, approximate="none": x * torch.sigmoid(x)
"""


@dataclass(frozen=True)
class Fault:
    """``culprits`` are (class, name, graph), all of them of ``compile_ids``."""

    model: str
    source: str
    culprits: frozenset[tuple[str, str, str | None]]
    rung: str = "inductor"
    kind: str = "exception"
    program: str = FORWARD
    timeout: float = 120.0
    compile_ids: frozenset[str] = frozenset({"0/0"})


def _one(group: str, name: str, graph: str | None = "inference") -> frozenset[tuple[str, str, str | None]]:
    return frozenset({(group, name, graph)})


FAULTS = {
    "a lowering that is wrong": Fault("gpt2", "plant(aten.tanh.default, times(1.5))", _one("lowering", "tanh")),
    "a lowering that raises": Fault(
        "bert", "def no(x): raise NotImplementedError('no erf')\nplant(aten.erf.default, no)", _one("lowering", "erf")
    ),
    "a lowering that crashes": Fault(
        "opt",
        "import ctypes\nplant(aten.relu.default, lambda out: ctypes.string_at(0))",
        _one("lowering", "relu"),
        kind="signal",
    ),
    "a lowering that hangs": Fault(
        "bert",
        "import time\nplant(aten.erf.default, lambda out: time.sleep(1e6))",
        _one("lowering", "erf"),
        kind="hang",
        timeout=60.0,
    ),
    "two lowerings that fail only together": Fault(
        "bert", TOGETHER, _one("lowering", "erf") | _one("lowering", "tanh")
    ),
    "a pattern": Fault("gpt2", PATTERN, _one("pattern", "tanh_to_sigmoid")),
    "a pass before the split": Fault("llama", PRE_GRAD, _one("pass", "swap", "pre_grad")),
    "a pass over the joint graph": Fault(
        "gpt2", PASS + "inductor.joint_custom_post_pass = Swap()", _one("pass", "Swap", "joint_graph")
    ),
    "a pass after it": Fault(
        "gpt2", PASS + "inductor.post_grad_custom_pre_pass = Swap()", _one("pass", "Swap", "post_grad")
    ),
    "a decomposition": Fault(
        "vit", DECOMPOSITION, _one("decomposition", "aten.gelu.default", "joint"), rung="aot_eager_decomp_partition"
    ),
    "a custom backend": Fault("llama", BACKEND, _one("pass", "swap", None), rung="custom"),
    "backward only": Fault(
        "bert",
        "plant(aten.erf.default, times(-1.0), lambda graph: graph.is_backward)",
        _one("lowering", "erf", "backward"),
        program=GRADIENTS,
    ),
    "dynamic shapes only": Fault(
        "bert",
        SYMBOLIC + "plant(aten.erf.default, times(10.0), symbolic)",
        _one("lowering", "erf"),
        program=SHAPES.replace("{dynamic}", "None"),
        compile_ids=frozenset({"0/1"}),
    ),
    "the third compile": Fault(
        "bert",
        THIRD + "plant(aten.erf.default, times(10.0), third)",
        _one("lowering", "erf"),
        program=SHAPES.replace("{dynamic}", "False"),
        compile_ids=frozenset({"0/2"}),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_culprits_of_a_planted_fault(bisected: Bisected, name: str) -> None:
    fault = FAULTS[name]
    verdict = bisected(HEAD + MODELS[fault.model] + fault.source + fault.program, timeout=fault.timeout)
    assert (verdict.verdict, verdict.rung) == ("found", fault.rung), verdict.notes
    assert verdict.failure is not None
    assert verdict.failure.kind == fault.kind
    assert {(c.group, c.name, c.graph) for c in verdict.culprits} == fault.culprits
    assert {c.compile_id for c in verdict.culprits} == fault.compile_ids
    assert all(c.lines for c in verdict.culprits), "each has a line of a library's or the user's"
    assert len(verdict.confirmed) == 2


def test_dropout_in_training_is_no_fault(bisected: Bisected) -> None:
    source = HEAD + MODELS["gpt2"] + "model.train()\n" + GRADIENTS
    verdict = bisected(source, accuracy=True)
    assert (verdict.verdict, verdict.exit_code) == ("passes", 3), verdict.failure


SOMETIMES = """
import random
if random.SystemRandom().random() < 0.3:
    plant(aten.tanh.default, times(1.5))

def f(x):
    return torch.tanh(torch.sin(x)) * 2

torch.testing.assert_close(torch.compile(f)(torch.ones(4)), f(torch.ones(4)))
"""


def test_a_flaky_failure_is_pinned_on_nothing_else(bisected: Bisected) -> None:
    verdict = bisected(HEAD + SOMETIMES, repeat=10)
    named = [(c.group, c.name) for c in verdict.culprits]
    assert (verdict.verdict, named) in [("flaky", []), ("passes", []), ("found", [("lowering", "tanh")])]
    rates = [note for note in verdict.notes if "a faulty candidate fails within" in note]
    assert verdict.verdict != "found" or len(rates) == 1
    assert not any("in 10 of 10" in rate for rate in rates), "each of these runs is a run of the whole program"
