"""The six models of pt2-skill-discovery, small and with random weights: `python benchmarks/agent_models.py aria`.

https://github.com/penguinwu/pt2-skill-discovery asks an agent to find the graph breaks of each, to say why they are
there, and to end them with the same output. `mcp_session.py benchmarks/agent_models.json` makes one call of the tool
`fix` for each. Each program calls the model twice.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import transformers

Case = tuple[torch.nn.Module, dict[str, Any]]
TEXT = {
    "num_hidden_layers": 2,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
}
VISION = {"num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 2}
WORDS = 8  # tokens of text behind those of the image


def aria() -> Case:
    """A mixture of experts that sees: 49 patches of an image become 128 tokens."""
    config = transformers.AriaConfig()
    change(config.text_config, **TEXT)
    change(config.vision_config, **VISION, image_size=224)
    config.projector_patch_to_query_dict[(224 // config.vision_config.patch_size) ** 2] = 128
    return seeing(transformers.AriaForConditionalGeneration, config, 128, pixel_values=torch.randn(1, 3, 224, 224))


def paddle_ocr() -> Case:
    """A reader of documents, whose patches come with a grid: of 16 patches 4 tokens are made."""
    config = transformers.PaddleOCRVLConfig()
    change(config.text_config, **TEXT | {"hidden_size": 256, "num_attention_heads": 2}, head_dim=128)
    config.text_config.rope_parameters |= {"mrope_section": [16, 24, 24]}
    change(config.vision_config, **VISION, patch_size=14, spatial_merge_size=2)
    return seeing(
        transformers.PaddleOCRVLForConditionalGeneration,
        config,
        4,
        pixel_values=torch.randn(16, 3, 14, 14),
        image_grid_thw=torch.tensor([[1, 4, 4]]),
        mm_token_type_ids=torch.zeros(1, 4 + WORDS, dtype=torch.long),
    )


def mistral() -> Case:
    """A model that sees an image of 16 by 16 patches as 64 tokens."""
    config = transformers.Mistral3Config()
    change(config.text_config, **TEXT)
    change(config.vision_config, **VISION, image_size=224)
    tokens = (224 // config.vision_config.patch_size // config.spatial_merge_size) ** 2
    images = {"pixel_values": torch.randn(1, 3, 224, 224), "image_sizes": torch.tensor([[224, 224]])}
    return seeing(transformers.Mistral3ForConditionalGeneration, config, tokens, **images)


def dbrx() -> Case:
    """A mixture of four experts, of which each token takes two."""
    config = transformers.DbrxConfig(
        vocab_size=256,
        d_model=64,
        n_layers=2,
        num_hidden_layers=2,
        max_seq_len=64,
        attn_config={"kv_n_heads": 1, "rope_theta": 500000.0, "clip_qkv": 8.0},
        ffn_config={"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    )
    config.hidden_size = config.ffn_config.hidden_size = config.d_model
    return transformers.DbrxForCausalLM(config).eval(), words(256)


def jamba() -> Case:
    """Layers with a state and layers of attention in turn."""
    sizes = TEXT | {"vocab_size": 256, "num_hidden_layers": 4}
    config = transformers.JambaConfig(
        **sizes, num_experts=2, attn_layer_period=2, attn_layer_offset=1, use_mamba_kernels=False
    )
    return transformers.JambaForCausalLM(config).eval(), words(256)


def vits() -> Case:
    """A voice, in training mode."""
    config = transformers.VitsConfig(hidden_size=32, num_hidden_layers=2, ffn_dim=64, flow_size=32)
    config.spectrogram_bins, config.upsample_initial_channel = 33, 64
    return transformers.VitsModel(config).train(), words(config.vocab_size)


def change(config: Any, **values: Any) -> None:
    """Set values of a configuration."""
    for name, value in values.items():
        setattr(config, name, value)


def words(vocabulary: int) -> dict[str, torch.Tensor]:
    """A text of 16 tokens."""
    return {"input_ids": torch.randint(0, vocabulary, (1, 16)), "attention_mask": torch.ones(1, 16, dtype=torch.long)}


def seeing(kind: Any, config: Any, tokens: int, **images: torch.Tensor) -> Case:
    """A model with an image and a text, in which ``tokens`` stand for the image."""
    model, image = kind(config).eval(), config.image_token_id
    if image >= config.text_config.vocab_size:
        model.resize_token_embeddings(image + 1)
    ids = torch.randint(0, TEXT["vocab_size"], (1, tokens + WORDS))
    ids[:, :tokens] = image
    return model, {**images, "input_ids": ids, "attention_mask": torch.ones_like(ids)}


def main(name: str) -> None:
    """Build the model, compile it, and call it twice."""
    torch.manual_seed(0)
    model, inputs = globals()[name]()
    compiled = torch.compile(model, backend="eager")
    for _ in range(2):
        torch.manual_seed(1)
        with torch.set_grad_enabled(model.training):
            outputs = compiled(**inputs)
        print(f"{outputs[0].double().mean().item():.4g}")


if __name__ == "__main__":
    main(sys.argv[1])
