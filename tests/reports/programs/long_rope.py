"""huggingface/transformers#35716 (2025): a break in a library's rotary embedding, whose branch is on max(position_ids)."""
import sys
import pathlib
import torch
import transformers

config = transformers.Phi3Config(
    vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
    max_position_embeddings=64, original_max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    rope_scaling={"rope_type": "longrope", "type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8},
)
model = transformers.Phi3ForCausalLM(config).eval()
compiled = torch.compile(model, backend="eager")
ids = torch.randint(3, 60, (1, 8))
with torch.no_grad():
    print(compiled(ids).logits.shape)
