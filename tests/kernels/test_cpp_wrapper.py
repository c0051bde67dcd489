"""A module of the C++ wrapper, in the form in which torch 2.13 writes it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dynadiag.kernels.cpp_wrapper import is_cpp_wrapper, parse_cpp_wrapper
from dynadiag.kernels.module_parser import Buffer

_TEXT = '''
cpp_wrapper_src = (
r"""
#include <torch/csrc/inductor/cpp_wrapper/cpu.h>
extern "C"  void  cpp_fused_sin_0(const float* in_ptr0,
                       float* out_ptr0);

void inductor_entry_impl(
    AtenTensorHandle*
        input_handles,
    AtenTensorHandle*
        output_handles
) {
    auto tangents_1 = std::move(inputs[0]);
    assert_size_stride(arg0_1, {64L, s0}, {64L, 1L}, "input");
    static constexpr int64_t int_array_0[] = {64L, 32L};
    static constexpr int64_t int_array_1[] = {32L, 1L};
    AtenTensorHandle buf0_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, int_array_0, int_array_1, cached_torch_dtype_float16, \
cached_torch_device_type_cpu, 0, &buf0_handle));
    cpp_fused_sin_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));
    // Topologically Sorted Source Nodes: [z], Original ATen: [aten.mm]
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf1, buf0, arg1_1));
    AtenTensorHandle buf3_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_cumsum(buf1, 0L, nullptr, &buf3_handle));
    RAIIAtenTensorHandle buf3(buf3_handle);
    auto buf2 = std::move(buf1);  // reuse
    output_handles[0] = buf2.release();
} // inductor_entry_impl

#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  cpp_fused_sin_0(const float* in_ptr0,
                       float* out_ptr0)
{
    auto tmp1 = tmp0.sin();
}
"""
)
'''


def test_a_wrapper_is_read_as_a_module() -> None:
    assert is_cpp_wrapper(_TEXT)
    module = parse_cpp_wrapper(_TEXT)
    (definition,) = module.definitions.values()
    lines = _TEXT.splitlines()
    assert (definition.name, definition.language) == ("cpp_fused_sin_0", "cpp")
    assert definition.parameters == ("const float* in_ptr0", "float* out_ptr0")
    assert lines[definition.first_line - 1].startswith("#include")
    assert lines[definition.line - 1].startswith('extern "C"')
    assert lines[definition.last_line - 1] == "}"
    assert definition.source.splitlines()[4] == "    auto tmp1 = tmp0.sin();"
    assert module.stage == "backward"
    kernel, product, library = module.calls
    assert (kernel.kernel, kernel.is_generated, kernel.arguments) == ("cpp_fused_sin_0", True, ("arg0_1", "buf0"))
    assert (product.kernel, product.is_generated, product.outputs) == ("mm", False, ("buf1",))
    assert product.arguments == ("buf0", "arg1_1", "out=buf1")
    assert product.comment is not None
    assert product.comment.sources == ("z",)
    assert (library.kernel, library.arguments, library.outputs) == ("cumsum", ("buf1", "0L", "nullptr"), ("buf3",))
    assert module.buffers["buf0"] == Buffer(("64", "32"), "torch.float16")
    assert module.buffers["arg0_1"].sizes == ("64", "s0")
    assert module.reuses == {"buf1": "buf2"}
    assert module.returns == {"": ("buf2",)}


_ON_A_GPU = '''
r"""
Compile-time auto-tuning block:

triton_poi_fused_sin_0 = async_compile.triton('triton_poi_fused_sin_0', \'\'\'
import triton
@triton.jit
def triton_poi_fused_sin_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    tmp1 = tl_math.sin(tmp0)
\'\'\', device_str='cuda')

    triton_poi_fused_sin_0.run(arg0_1, buf0, 4096, stream=stream0)
"""

cpp_wrapper_src = (
r"""
static CUfunction triton_poi_fused_sin_0 = nullptr;
static inline void call_triton_poi_fused_sin_0(
    const in_ptr0_type_& in_ptr0,
){
    launchKernel(triton_poi_fused_sin_0, grid_0, grid_1, grid_2, 4, 0, kernel_args_, stream_);
}

void inductor_entry_impl(
) {
    auto arg0_1 = std::move(inputs[0]);
    AOTICudaGuard device_guard(0);
    // Topologically Sorted Source Nodes: [sin], Original ATen: [aten.sin]
    cudaStream_t stream0;
    call_triton_poi_fused_sin_0(arg0_1, buf0, 4096L, 0, stream0);
} // inductor_entry_impl
"""
)

def get_args():
    arg0_1 = rand_strided((64, 64), (64, 1), device='cuda:0', dtype=torch.float32)
    return [arg0_1]
'''


def test_on_a_gpu_the_sources_of_its_kernels_stand_before_it() -> None:
    module = parse_cpp_wrapper(_ON_A_GPU)
    (definition,) = module.definitions.values()
    assert (definition.language, definition.parameters[:2]) == ("triton", ("in_ptr0", "out_ptr0"))
    assert "async_compile.triton(" in _ON_A_GPU.splitlines()[definition.line - 1]
    (call,) = module.calls
    assert (call.kernel, call.is_generated, call.arguments) == (
        "triton_poi_fused_sin_0",
        True,
        ("arg0_1", "buf0", "4096L"),
    )
    assert call.comment is not None
    assert module.selects_gpu
    assert module.buffers["arg0_1"] == Buffer(("64", "64"), "torch.float32")


@given(st.text(max_size=300))
def test_any_text_is_a_wrapper(text: str) -> None:
    parse_cpp_wrapper("void inductor_entry_impl(\n" + text)
