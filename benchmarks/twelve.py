"""Twelve models to explain, each from a small configuration with random weights: nothing is downloaded.

`MODELS` gives for each name what builds the model, compiles it, and yields its calls: three sequence lengths for each
of two batch sizes.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

__all__ = ["MODELS"]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LENGTHS, BATCHES = (8, 12, 20), (2, 3)
VOCABULARY = 64
_HALF = {"layers": 1, "attention_heads": 4, "ffn_dim": 48}
Calls = Iterator[Callable[[], object]]


def ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(4, VOCABULARY, (batch, length), device=DEVICE)


def small(**more: Any) -> dict[str, Any]:
    """The settings that most configurations share, small."""
    common = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    return {**common, "intermediate_size": 48, "max_position_embeddings": 64, **more}


def both_halves(**more: Any) -> dict[str, Any]:
    """The settings that encoders with a decoder share, small."""
    halves = {f"{half}_{what}": number for half in ("encoder", "decoder") for what, number in _HALF.items()}
    return {"vocab_size": VOCABULARY, "d_model": 32, **halves, **more}


def in_each_shape(call: Callable[[int, int], object]) -> Calls:
    """``call(batch, length)`` for each, the length changing fastest."""
    return (functools.partial(call, batch, length) for batch in BATCHES for length in LENGTHS)


def compiled(model: torch.nn.Module) -> Callable[..., Any]:
    return torch.compile(model.to(DEVICE).eval(), backend="eager")


def bert() -> Calls:
    model = compiled(transformers.BertModel(transformers.BertConfig(**small())))
    return in_each_shape(lambda b, n: model(ids(b, n), attention_mask=torch.ones(b, n, device=DEVICE)))


def gpt2_with_loss() -> Calls:
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    model = compiled(transformers.GPT2LMHeadModel(config))

    def call(b: int, n: int) -> object:
        x = ids(b, n)
        return model(x, labels=x)

    return in_each_shape(call)


def llama_with_static_cache() -> Calls:
    config = transformers.LlamaConfig(**small(num_key_value_heads=2))
    model = compiled(transformers.LlamaForCausalLM(config))

    def call(b: int, n: int) -> object:
        cache = transformers.StaticCache(config=config, max_cache_len=32)
        x = ids(b, n)
        model(x, past_key_values=cache, cache_position=torch.arange(n, device=DEVICE))
        return model(x[:, -1:], past_key_values=cache, cache_position=torch.tensor([n], device=DEVICE))

    return in_each_shape(call)


def t5() -> Calls:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    model = compiled(transformers.T5ForConditionalGeneration(config))
    return in_each_shape(lambda b, n: model(input_ids=ids(b, n), labels=ids(b, n // 2)))


def vit() -> Calls:
    config = transformers.ViTConfig(**_without_words(), image_size=32, patch_size=8)
    model = compiled(transformers.ViTModel(config))

    def call(b: int, n: int) -> object:
        return model(torch.randn(b, 3, 8 * n, 32, device=DEVICE), interpolate_pos_encoding=True)

    return in_each_shape(lambda b, n: call(b, n // 4))


def _without_words() -> dict[str, Any]:
    return {key: value for key, value in small().items() if key not in ("vocab_size", "max_position_embeddings")}


def mamba() -> Calls:
    config = transformers.MambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, state_size=4)
    model = compiled(transformers.MambaForCausalLM(config))
    return in_each_shape(lambda b, n: model(ids(b, n)))


def mixtral() -> Calls:
    config = transformers.MixtralConfig(**small(num_key_value_heads=2, num_local_experts=4))
    model = compiled(transformers.MixtralForCausalLM(config))
    return in_each_shape(lambda b, n: model(ids(b, n)))


def whisper() -> Calls:
    lengths = {"num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 32}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = transformers.WhisperConfig(**both_halves(**lengths, **tokens))
    model = compiled(transformers.WhisperForConditionalGeneration(config))

    def call(b: int, n: int) -> object:
        return model(torch.randn(b, 8, 40, device=DEVICE), decoder_input_ids=ids(b, n))

    return in_each_shape(call)


def clip() -> Calls:
    config = transformers.CLIPConfig(
        text_config=small(eos_token_id=2),
        vision_config={**_without_words(), "image_size": 16, "patch_size": 8},
        projection_dim=16,
    )
    model = compiled(transformers.CLIPModel(config))

    def call(b: int, n: int) -> object:
        return model(ids(b, n), torch.randn(b, 3, 16, 16, device=DEVICE), return_loss=True)

    return in_each_shape(call)


def deberta_v2() -> Calls:
    config = transformers.DebertaV2Config(
        **small(relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, max_relative_positions=16)
    )
    model = compiled(transformers.DebertaV2Model(config))
    return in_each_shape(lambda b, n: model(ids(b, n)))


def bart_generate() -> Calls:
    config = transformers.BartConfig(**both_halves(max_position_embeddings=64, forced_eos_token_id=None))
    model = transformers.BartForConditionalGeneration(config).to(DEVICE).eval()
    model.forward = torch.compile(model.forward, backend="eager")

    def call(b: int, n: int) -> object:
        return model.generate(ids(b, n), max_new_tokens=3, num_beams=1, do_sample=False)

    return in_each_shape(call)


def training_step() -> Calls:
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    model = transformers.GPT2LMHeadModel(config).to(DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x, labels=x).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    whole = torch.compile(step, backend="aot_eager")
    return in_each_shape(lambda b, n: whole(ids(b, n)))


MODELS: dict[str, Callable[[], Calls]] = {
    "bert": bert,
    "gpt2 with loss": gpt2_with_loss,
    "llama with static cache": llama_with_static_cache,
    "t5": t5,
    "vit": vit,
    "mamba": mamba,
    "mixtral": mixtral,
    "whisper": whisper,
    "clip": clip,
    "deberta-v2": deberta_v2,
    "bart generate": bart_generate,
    "training step": training_step,
}
