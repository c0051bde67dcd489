"""Kernels on tensor cores are recognized by their names, here those seen on an H200 and an A100."""

from __future__ import annotations

import pytest

from dynadiag.compare.measure import uses_tensor_cores


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT", True),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128", True),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8>", True),
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", True),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>", True),
        ("triton_tem_fused_mm_0", True),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>", False),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80", False),
        ("triton_poi_fused_add_relu_sigmoid_0", False),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", False),
    ],
)
def test_tensor_cores_are_told_by_the_name(name: str, expected: bool) -> None:
    assert uses_tensor_cores(name) is expected
