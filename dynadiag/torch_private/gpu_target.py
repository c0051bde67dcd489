"""Private names of torch for generating code for a GPU that this machine does not have.

The program runs on the CPU. Its graph after AOTAutograd is lowered as if its tensors were on the GPU: a joint graph is
moved there before it is split into forward and backward. While Inductor lowers a graph, queries of the device get the
properties of the target. The generated module is not loaded. Instead the graph itself runs, operator by operator, on
the CPU. Read in torch 2.11.0, 2.13.0 and 2.15.0.

Autograd never differentiates tensors that claim to be on a GPU, because its engine asks the driver for streams.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch._inductor.compile_fx as inductor
import triton
from torch import fx
from torch._dynamo import device_interface
from torch._functorch import config as aot_config
from torch._inductor import config
from torch._inductor import utils as inductor_utils
from torch._inductor.codecache import CacheBase, PyCodeCache
from torch._inductor.decomposition import decompositions, fast_random_decomps
from torch._subclasses import fake_tensor
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils import _triton
from torch.utils._pytree import tree_leaves
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from dynadiag.errors import DynadiagError
from dynadiag.torch_private.gpu_specs import GpuSpec, gpu_spec


class CodegenOnlyDriver(DriverBase):
    """Names a GPU to generate code for. It cannot launch kernels. ``tensor_device`` is the device of the tensors."""

    # Not the base class's: a GPU's own asks its driver
    def __init__(self, device: GpuSpec, tensor_device: str) -> None:
        self._target = GPUTarget("cuda", device.major * 10 + device.minor, device.warp_size)
        self._tensor_device = torch.device(tensor_device)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> Any:
        return self._target

    def get_active_torch_device(self) -> torch.device:
        return self._tensor_device

    def get_benchmarker(self) -> Callable[..., Any]:
        raise NotImplementedError("a kernel that no GPU runs has no time worth measuring")

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: Any = None) -> int:
        return 0


_CPU = torch.device("cpu")
_GPU = torch.device("cuda", 0)


def generate_for_gpu(name: str) -> None:
    """Make Inductor in this process generate code for the named GPU instead of the CPU.

    Code is only generated: compiled functions return what their graphs compute on the CPU. Compiler caches are off.
    Raises `DynadiagError` for a name that is not in `GPU_SPECS`, and if this machine has a GPU.
    """
    device = gpu_spec(name)
    if torch.cuda.is_available():
        raise DynadiagError(f"this machine has a GPU: code for an absent one ({device.name}) is generated without it")
    triton.runtime.driver.set_active(CodegenOnlyDriver(device, "cuda:0"))
    config.fx_graph_cache = aot_config.enable_autograd_cache = False
    CacheBase.get_system()  # cached by torch; later a torch without CUDA would take the target for an AMD GPU
    for operator, decomposition in decompositions.items():
        decompositions[operator] = _decompose_as_gpu(decomposition)
    fast_random_decomps.cache_clear()  # it has a copy of the table
    inductor._recursive_joint_graph_passes = _move_after_passes(inductor._recursive_joint_graph_passes)
    inductor._compile_fx_inner = _lower_for_gpu(inductor._compile_fx_inner, device)


def _decompose_as_gpu(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a decomposition so that its fake tensors claim to be on a GPU. Some (layer norm's) depend on the device."""

    @functools.wraps(decomposition)
    def decompose(*args: Any, **kwargs: Any) -> Any:
        given = _fake_tensors((args, kwargs))
        devices = [tensor.fake_device for tensor in given]
        try:
            _set_devices(given, [_GPU] * len(given))
            result = decomposition(*args, **kwargs)
        finally:
            _set_devices(given, devices)
        made = _fake_tensors(result)
        _set_devices(made, devices[:1] * len(made))
        return result

    return decompose


def _fake_tensors(values: Any) -> list[fake_tensor.FakeTensor]:
    return [value for value in tree_leaves(values) if isinstance(value, fake_tensor.FakeTensor)]


def _set_devices(tensors: list[fake_tensor.FakeTensor], devices: list[torch.device]) -> None:
    for tensor, device in zip(tensors, devices, strict=False):
        tensor.fake_device = device


def _move_after_passes(passes: Callable[..., fx.GraphModule]) -> Callable[..., fx.GraphModule]:
    """Wrap the passes over a joint graph so that the graph is moved to the GPU afterwards.

    The passes run on the CPU: they compute constants, and some of their patterns trace a joint graph of their own.
    """

    @functools.wraps(passes)
    def passes_and_move(graph: fx.GraphModule, *args: Any, **kwargs: Any) -> fx.GraphModule:
        _replace_device(graph, _GPU, _CPU)
        passed = passes(graph, *args, **kwargs)
        _replace_device(passed, _CPU, _GPU)
        values = [node.meta["val"] for node in passed.graph.find_nodes(op="placeholder")]
        mode = next((value.fake_mode for value in values if isinstance(value, fake_tensor.FakeTensor)), None)
        if mode is not None:
            FakeTensorProp(passed, mode).propagate_dont_convert_inputs(*map(_gpu_copy, values))
        return passed

    return passes_and_move


def _lower_for_gpu(lower: Callable[..., Any], device: GpuSpec) -> Callable[..., Any]:
    """Wrap Inductor's lowering of one graph for the device. The result calls the graph on the CPU."""

    @functools.wraps(lower)
    def lower_for_device(graph: fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        called = copy.deepcopy(graph)
        _replace_device(called, _GPU, _CPU)
        called.recompile()
        kwargs |= {"cudagraphs": inductor_utils.BoxedBool(False)}  # it is split for CUDA graphs, and none is made
        with _device_queries(device):
            lower(graph, [_gpu_copy(value) for value in inputs], **kwargs)
        return _boxed_call(called)

    return lower_for_device


def _boxed_call(graph: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """AOTAutograd's calling convention: one list of arguments, which the callee empties."""

    def call(arguments: list[Any]) -> Any:
        given = tuple(arguments)
        arguments.clear()
        with torch.no_grad():
            return graph(*given)

    call._boxed_call = True  # type: ignore[attr-defined] # AOTAutograd checks this attribute
    return call


def _replace_device(graph: fx.GraphModule, source: torch.device, target: torch.device) -> None:
    """Replace one device by another in the arguments of all nodes."""

    def moved(value: Any) -> Any:
        return target if isinstance(value, torch.device) and value.type == source.type else value

    for node in graph.graph.nodes:
        node.args = fx.node.map_aggregate(node.args, moved)
        node.kwargs = fx.node.map_aggregate(node.kwargs, moved)


def _gpu_copy(value: Any) -> Any:
    """A fake tensor like this one but on the GPU. Any other value as it is."""
    if not isinstance(value, fake_tensor.FakeTensor):
        return value
    with value.fake_mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=_GPU)


@contextlib.contextmanager
def _device_queries(device: GpuSpec) -> Iterator[None]:
    """While the block runs, torch's device queries get this device, and no generated code is loaded."""

    def properties(_which: Any = None) -> GpuSpec:
        return device

    def capability(_which: Any = None) -> tuple[int, int]:
        return device.major, device.minor

    interface = device_interface.CudaInterface
    answers: list[tuple[Any, str, Any]] = [
        (torch.cuda, "current_device", lambda: 0),
        (torch.cuda, "get_device_properties", properties),
        (torch.cuda, "get_device_capability", capability),
        (interface, "is_available", staticmethod(lambda: True)),
        (interface, "is_bf16_supported", staticmethod(lambda *_how, **_more: device.major >= 8)),
        (interface, "current_device", staticmethod(lambda: 0)),
        (interface, "get_device_properties", staticmethod(properties)),
        (interface.Worker, "get_device_properties", staticmethod(properties)),
        (PyCodeCache, "load_by_key_path", staticmethod(_module_stub)),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, answer in answers:
            stack.callback(setattr, owner, name, vars(owner)[name])
            setattr(owner, name, answer)
        stack.callback(_clear_device_caches)
        _clear_device_caches()
        yield


def _module_stub(_key: str, path: str, **_more: Any) -> Any:
    """A stand-in for a generated module: it has the file, and a function that must not be called."""
    return types.SimpleNamespace(__file__=path, call=_nothing)


def _nothing(_arguments: list[Any]) -> None:
    raise NotImplementedError("code for a GPU that this machine does not have was called")


def _clear_device_caches() -> None:
    """Clear torch's cached answers about the device (such as whether it has Triton)."""
    kept = [*vars(_triton).values(), inductor_utils.is_big_gpu, inductor_utils.get_max_num_sms]
    for function in kept:
        if hasattr(function, "cache_clear"):
            function.cache_clear()
