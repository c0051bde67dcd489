"""Small models of the classes of Transformers, built by rule, with inputs: for `model_classes.py`.

A config of a class is its default one with its sizes made small, by the names of its fields: two layers, 32 features,
four heads. Where the small model does not run, sizes are kept and layers and vocabularies alone made small. Inputs
follow from the names in the signature of `forward`. Nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import transformers

__all__ = ["class_names", "model_and_inputs", "outputs_of"]

_LAYERS = re.compile(
    r"^(?:num_(?:\w+_)?(?:hidden_)?layers|n_layers?|num_layers|(?:\w+_)?(?:encoder|decoder)_layers|layers|depth|num_blocks"
    r"|num_hidden_blocks|\w*num_layers|n_blocks|num_attention_layers|\w+_depth|num_layers_per_block)$"
)
_WIDTHS = re.compile(
    r"^(?:hidden_size|d_model|n_embd|dim|embed_dim|hidden_dim|emb_dim|embedding_size|\w*hidden_size|encoder_embed_dim|width"
    r"|projection_dim|\w*projection_(?:dim|size)|word_embed_proj_dim|d_embed|\w*embedding_dim|\w*embed_dims?|\w*hidden_dim"
    r"|input_dim|output_dim|out_dim|conv_dim|hidden_channels|shared_dim|decoder_dim)$"
)
_INNER = re.compile(
    r"^(?:\w*intermediate_size|\w*ffn_dim|d_ff|n_inner|mlp_dim|ffn_hidden_size|\w*feedforward\w*dim|\w*ffn_hidden_size)$"
)
_HEADS = re.compile(r"^(?:num_attention_heads|n_heads?|num_heads|\w*attention_heads|\w*num_heads)$")
_GROUPS = re.compile(r"^(?:num_key_value_heads|num_kv_heads|n_kv_heads?|multi_query_group_num)$")
_HEAD = re.compile(r"^(?:head_dim|d_kv|d_head|attention_head_dim|kv_channels|global_head_dim)$")
_EXPERTS = re.compile(r"^(?:num_(?:local_|routed_)?experts|n_routed_experts|moe_num_experts)$")
_CHOSEN = re.compile(r"^(?:num_experts_per_tok|moe_k|top_k|moe_topk|n_group|topk_group|num_selected_experts)$")
_VOCABULARY = re.compile(r"^\w*vocab_size$")
_POSITIONS = re.compile(r"^(?:max_position_embeddings|n_positions|max_source_positions|max_target_positions)$")
_WIDTH, _HEAD_WIDTH, _N_HEADS, _N_VOCABULARY = 32, 8, 4, 128
_STRENGTHS = ("small", "narrow", "short")
_BATCH, _LENGTH = 2, 12


def class_names() -> list[str]:
    """The model classes of the installed Transformers, by the tables of its auto classes."""
    from transformers.models.auto import modeling_auto

    names = set[str]()
    for table, classes in vars(modeling_auto).items():
        if table.endswith("_MAPPING_NAMES"):
            for value in classes.values():
                names |= {value} if isinstance(value, str) else set(value)
    ends = ("Model", "Encoder", "Decoder", "Backbone")
    return sorted(name for name in names if not name.endswith("Config") and ("For" in name or name.endswith(ends)))


def model_and_inputs(name: str, mode: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    """A small model of a class with inputs that it takes, in "eval" or "train" mode.

    Raises the exception of the last attempt where none runs.
    """
    failure: Exception | None = None
    for strength in _STRENGTHS:
        try:
            model = _model(name, strength, mode)
        except Exception as error:  # noqa: BLE001 - a config that does not fit fails in any way
            failure = failure or error
            continue
        for inputs in _inputs(model):
            try:
                with torch.no_grad(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    state = torch.get_rng_state()
                    outputs = model(**_copied(inputs))
                    torch.set_rng_state(state)
                if any(True for _ in outputs_of(outputs)):
                    return _model(name, strength, mode), inputs
            except Exception as error:  # noqa: BLE001 - as above
                failure = failure or error
    raise failure or TypeError(f"{name}: no inputs")


def outputs_of(outputs: Any) -> Iterator[torch.Tensor]:
    """The float tensors of what a model returns."""
    for leaf in torch.utils._pytree.tree_leaves(dict(outputs) if isinstance(outputs, dict) else outputs):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            yield leaf


def _copied(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}


def _model(name: str, strength: str, mode: str) -> torch.nn.Module:
    class_: Any = getattr(transformers, name)
    config = class_.config_class()
    _shrink(config, strength)
    torch.manual_seed(0)
    given: dict[str, Any] = {"tie_word_embeddings": False}  # and what some classes refuse to be without
    given |= {key: 8 for key in ("prediction_length", "context_length") if getattr(config, key, 8) is None}
    if getattr(config, "languages", None) and getattr(config, "default_language", "") is None:
        given["default_language"] = config.languages[0]
    for key, value in given.items():
        with contextlib.suppress(Exception):
            setattr(config, key, value)
    model = class_(config)
    if sum(each.numel() for each in model.parameters()) > 300_000_000:
        raise ValueError(f"{name}: too large")
    return model.train(mode == "train")


def _shrink(config: Any, strength: str) -> None:
    """Make the fields of a config small, and those of the configs in it."""
    fields = [key for key in vars(config) if not key.startswith("_")]
    for key in fields:
        value = getattr(config, key)
        if isinstance(value, transformers.PretrainedConfig):
            _shrink(value, strength)
        elif type(value) in (int, list, tuple):
            made = _shrunk(key, value, strength, config)
            if made is not None and made != value:
                with contextlib.suppress(Exception):  # a property without a setter
                    setattr(config, key, made)
    _shrink_tokens(config)
    layers = getattr(config, "num_hidden_layers", None)
    for key in ("layer_types", "mlp_layer_types", "layers_block_type", "attention_types", "no_rope_layers"):
        if isinstance(getattr(config, key, None), list) and isinstance(layers, int):
            kept = getattr(config, key)
            distinct = list(dict.fromkeys(kept)) if isinstance(kept[0], str) else kept
            with contextlib.suppress(Exception):
                setattr(config, key, [*distinct, *kept][:layers])


def _shrunk(key: str, value: Any, strength: str, config: Any) -> Any:
    """The small value of a field; ``None`` for one that stays."""
    if isinstance(value, (list, tuple)):
        return _shrunk_list(key, value, strength)
    if _LAYERS.match(key):
        return min(value, 2)
    if _VOCABULARY.match(key) and value > _N_VOCABULARY:
        return _N_VOCABULARY
    if _EXPERTS.match(key):
        return min(value, 8)
    if _CHOSEN.match(key):
        return min(value, 2)
    if strength == "short":
        return None
    if strength == "small":
        if key == "image_size" and value > 64:
            return 64
        if key in ("patch_size", "vision_patch_size") and value >= 14:
            return 16
    if _HEADS.match(key):
        return min(value, _N_HEADS)
    if _GROUPS.match(key):
        heads = getattr(config, "num_attention_heads", None)
        return value if value == 1 else min(value, 2 if isinstance(heads, int) and value < heads else _N_HEADS)
    if _HEAD.match(key):
        return min(value, _HEAD_WIDTH)
    if _WIDTHS.match(key) and value > _WIDTH:
        return _WIDTH
    if _INNER.match(key) and value > 2 * _WIDTH:
        return 2 * _WIDTH
    if _POSITIONS.match(key) and value > 512 and strength == "small":
        return 512
    return None


def _shrunk_list(key: str, value: Any, strength: str) -> Any:
    if not value or not all(type(each) is int for each in value):
        return None
    if key in ("depths", "num_layers", "layers", "num_blocks", "encoder_depths", "decoder_depths"):
        return type(value)(min(each, 2) for each in value)
    if strength == "small" and max(value) > 64 and re.search(r"hidden_sizes|embed_dims?$|dims$", key):
        return type(value)(max(8, each * 64 // max(value) // 8 * 8) for each in value)
    return None


def _shrink_tokens(config: Any) -> None:
    """Special tokens inside the vocabulary, each another one."""
    size, free = getattr(config, "vocab_size", _N_VOCABULARY), _N_VOCABULARY - 1
    if isinstance(size, int) and getattr(config, "pad_token_id", None) is None:
        with contextlib.suppress(Exception):
            config.pad_token_id = 0
    for key in list(vars(config)):
        value = getattr(config, key, None)
        if re.search(r"_token_(?:id|index)$|^image_token_id$|_token$", key) and type(value) is int:
            limit = size if isinstance(size, int) else _N_VOCABULARY
            if value >= min(limit, _N_VOCABULARY) or value < -1:
                with contextlib.suppress(Exception):
                    setattr(config, key, free)
                free -= 1


def _sub(config: Any, *names: str) -> Any:
    for name in names:
        if (found := getattr(config, name, None)) is not None:
            return found
    return config


def _inputs(model: Any) -> Iterator[dict[str, Any]]:
    """Inputs to try, those with all that a class can take first."""
    parameters = inspect.signature(model.forward).parameters
    names = [name for name in parameters if name not in ("self", "args", "kwargs")]
    generator = torch.Generator().manual_seed(0)
    texts = _texts(model.config, names, generator)
    images = list(_images(model.config, names, generator))
    sounds = list(_sounds(model.config, names, generator))
    for media in [*images, *sounds]:
        if texts:
            for count in _image_counts(model, media):
                yield {**texts, **media, **_placed(model.config, names, texts, count)}
            yield {**texts, **media}
        yield media
    if texts:
        yield texts
        if "decoder_input_ids" in texts:
            yield {**texts, **_ended(model.config, texts["input_ids"])}
        yield {key: value[:, None].repeat(1, 2, 1) for key, value in texts.items()}  # two choices
    main = getattr(model, "main_input_name", None)
    if main in ("inputs", "past_values"):
        yield from _other(model.config, names, generator)
    if "inputs_embeds" in names:
        width = _sub(model.config, "text_config").hidden_size
        yield {"inputs_embeds": torch.randn(_BATCH, _LENGTH, width, generator=generator)}


def _texts(config: Any, names: list[str], generator: torch.Generator) -> dict[str, Any]:
    text = _sub(config, "text_config", "text_encoder", "encoder")
    size = getattr(text, "vocab_size", None)
    size = size if isinstance(size, int) and size > 8 else _N_VOCABULARY
    ids = torch.randint(5, min(size, 100), (_BATCH, _LENGTH), generator=generator)
    made: dict[str, Any] = {}
    if "input_ids" in names:
        made["input_ids"] = ids
        if "attention_mask" in names:
            made["attention_mask"] = torch.ones(_BATCH, _LENGTH, dtype=torch.long)
    if "decoder_input_ids" in names:
        made["decoder_input_ids"] = ids[:, :8].clone()
    if "bbox" in names:
        made["bbox"] = torch.zeros(_BATCH, _LENGTH, 4, dtype=torch.long)
    return made


def _ended(config: Any, ids: torch.Tensor) -> dict[str, Any]:
    """The text for both sides, with its end marked: what classifies reads the output at the marks of the input."""
    ended = ids.clone()
    ended[:, -1] = getattr(config, "eos_token_id", None) or 0
    return {"input_ids": ended, "decoder_input_ids": ended.clone()}


def _images(config: Any, names: list[str], generator: torch.Generator) -> Iterator[dict[str, Any]]:
    vision = _sub(config, "vision_config", "backbone_config", "encoder")
    known = (getattr(each, key, None) for each in (vision, config) for key in ("num_channels", "in_channels"))
    channels = next((value for value in known if type(value) is int), 3)
    size = next((each.image_size for each in (vision, config) if getattr(each, "image_size", None) is not None), None)
    size = list(size) if isinstance(size, (list, tuple)) else [size, size] if isinstance(size, int) else None
    frames = next((each.num_frames for each in (vision, config) if type(getattr(each, "num_frames", None)) is int), 4)
    sizes = [size] if size else [[64, 64], [128, 128], [224, 224]]
    for height, width in sizes:
        image = torch.randn(_BATCH, channels, height, width, generator=generator)
        if "pixel_values" in names:
            if "image_grid_thw" in names:
                yield from _patches(vision, generator)
            yield {"pixel_values": image}
            yield {"pixel_values": image[:, None].repeat(1, frames, 1, 1, 1)}
            yield {"pixel_values": image[:, None].repeat(1, 2, 1, 1, 1)}
            if "image_sizes" in names:
                yield {"pixel_values": image, "image_sizes": torch.tensor([[height, width]] * _BATCH)}
                tiles = image[:, None].repeat(1, 5, 1, 1, 1)
                yield {"pixel_values": tiles, "image_sizes": torch.tensor([[2 * height, 2 * width]] * _BATCH)}
        if "pixel_values_videos" in names:
            yield {"pixel_values_videos": image[:, None].repeat(1, frames, 1, 1, 1)}
        for key in ("hidden_states", "pixel_values"):
            for each in _patches(vision, generator) if key in names and "grid_thw" in names else ():
                yield {key: each["pixel_values"], "grid_thw": each["image_grid_thw"]}


def _patches(vision: Any, generator: torch.Generator) -> Iterator[dict[str, Any]]:
    patch, merge = getattr(vision, "patch_size", 14), getattr(vision, "spatial_merge_size", 2)
    width = getattr(vision, "in_channels", getattr(vision, "num_channels", 3)) * patch * patch
    grid = torch.tensor([[1, 2 * merge, 2 * merge]] * _BATCH)
    for times in (getattr(vision, "temporal_patch_size", 1), 1):
        patches = torch.randn(int(grid.prod(-1).sum()), width * times, generator=generator)
        yield {"pixel_values": patches, "image_grid_thw": grid}


def _image_counts(model: Any, media: dict[str, Any]) -> Iterator[int]:
    """How many places in the text an image takes, by the model's own features."""
    inner = getattr(model, "model", None)
    features = getattr(model, "get_image_features", None) or getattr(inner, "get_image_features", None)
    if features is None or not any(key.startswith("pixel") for key in media):
        return
    taken = inspect.signature(features).parameters
    with contextlib.suppress(Exception), torch.no_grad():
        made = features(**{key: value for key, value in media.items() if key in taken})
        made = getattr(made, "pooler_output", made)
        made = torch.cat(list(made)) if isinstance(made, (list, tuple)) else made
        yield made.numel() // made.shape[-1] // _BATCH


def _placed(config: Any, names: list[str], texts: dict[str, Any], count: int) -> dict[str, Any]:
    """The text with places for an image in each row."""
    keys = ("image_token_id", "image_token_index", "video_token_id")
    token = next((value for key in keys if type(value := getattr(config, key, None)) is int), None)
    if token is None or "input_ids" not in texts or count <= 0 or count > 4096:
        return {}
    ids = texts["input_ids"]
    image = torch.full((_BATCH, count), token)
    made = {"input_ids": torch.cat([ids[:, :4], image, ids[:, 4:]], 1)}
    if "mm_token_type_ids" in names:
        made["mm_token_type_ids"] = (made["input_ids"] == token).long()
    if "attention_mask" in texts:
        made["attention_mask"] = torch.ones_like(made["input_ids"])
    return made


def _sounds(config: Any, names: list[str], generator: torch.Generator) -> Iterator[dict[str, Any]]:
    audio = _sub(config, "audio_config", "encoder_config")
    keys = ("num_mel_bins", "input_feat_per_channel", "feature_size")
    bins = next((value for key in keys if type(value := getattr(audio, key, None)) is int), 80)
    length = 2 * getattr(audio, "max_source_positions", 100)
    ids = torch.randint(5, 100, (_BATCH, 8), generator=generator)
    decoder = {"decoder_input_ids": ids} if "decoder_input_ids" in names else {}
    if "input_features" in names:
        for shape in ((_BATCH, bins, length), (_BATCH, 100, bins), (_BATCH, 100, 160), (_BATCH, 1, 1001, bins)):
            made = {"input_features": torch.randn(shape, generator=generator), **decoder}
            yield made
            if "attention_mask" in names:
                steps = shape[-1] if shape[1] == bins else shape[1]
                yield {**made, "attention_mask": torch.ones(_BATCH, steps, dtype=torch.long)}
    if "input_values" in names:
        for form in ((_BATCH, 4000), (_BATCH, 1, 4000), (_BATCH, 1024, 128), (_BATCH, 100, bins)):
            yield {"input_values": torch.randn(form, generator=generator), **decoder}


def _other(config: Any, names: list[str], generator: torch.Generator) -> Iterator[dict[str, Any]]:
    if "past_values" in names:
        length = getattr(config, "context_length", 32) + max(getattr(config, "lags_sequence", None) or [0])
        for shape in ((_BATCH, length), (_BATCH, length, getattr(config, "num_input_channels", 1))):
            past = torch.randn(shape, generator=generator)
            made = {"past_values": past}
            if "past_time_features" in names:
                width = getattr(config, "num_time_features", 0)
                made["past_time_features"] = torch.randn(_BATCH, length, width, generator=generator)
                made["past_observed_mask"] = torch.ones(shape)
                future = getattr(config, "prediction_length", 8) or 8
                made["future_values"] = torch.randn(_BATCH, future, *shape[2:], generator=generator)
                made["future_time_features"] = torch.randn(_BATCH, future, width, generator=generator)
            yield made
            yield {"past_values": past}
    if "inputs" in names:
        yield {"inputs": torch.randint(5, 100, (_BATCH, _LENGTH), generator=generator)}
        yield {"inputs": torch.randn(_BATCH, 16, getattr(config, "d_model", 32), generator=generator)}
