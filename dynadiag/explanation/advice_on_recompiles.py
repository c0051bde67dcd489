"""The advice on recompiles: the part of the table in `advice_table`."""

from __future__ import annotations

from dynadiag.explanation.advice_entry import AdviceEntry, tried

__all__ = ["RECOMPILES"]

_SWITCHED = "that is different code, and one compile for each is expected. Warm up both; do not switch inside a loop."
_NEEDS_VALUE = (
    "changed before and is still a constant: it was compiled with `dynamic=False`, or Python code needs to know it"
)

# Recompiles: what would have kept the compiled code usable.
RECOMPILES = {
    "recompile.no_reason": AdviceEntry("No reason was recorded for this recompile."),
    "recompile.gave_up": AdviceEntry(
        "torch gave up compiling this function: it reached the limit (`torch._dynamo.config.recompile_limit`, 8 "
        "variants of a function by default, and `accumulated_recompile_limit`, 256). Calls that fit a variant "
        "compiled so far still use it, all others now run uncompiled, with everything they call."
    ),
    "recompile.limit": AdviceEntry(
        "End the recompiles first; raise the limit only if all variants are wanted. "
        "`torch._dynamo.config.fail_on_recompile_limit_hit = True` makes it an exception, and "
        "`torch._dynamo.config.error_on_recompile = True` does so at the first recompile."
    ),
    "break.compiled_apart": tried(
        "`{function}` is compiled by itself only because the break at `{place}` leaves its caller `{caller}` to "
        "Python. End that break first: it is then a part of the caller's graph, and what changes from one of its calls "
        "to the next, but not for `{caller}`, is no reason to compile again.",
        "a_loop_with_a_break",
    ),
    "recompile.shared_wrapper": tried(
        "Another callable than before: torch compiles what has no Python function of its own (a builtin, a partial, a "
        "callable object, a module of `torch.nn`) by way of one function, and all of these share its variants and "
        "their limit. Where they are many, write a function around each: `torch.compile(lambda x: fn(x))`.",
        "partials",
    ),
    "recompile.unknown": AdviceEntry("What this guard reads changed between the calls; nothing more is known of it."),
    "recompile.other": AdviceEntry(
        "{names} changed: keep it the same for every call, or pass what depends on it as a tensor."
    ),
    "size.parameter": AdviceEntry(
        "A parameter has another shape: torch treats shapes of parameters as constants. Expect one compile "
        "for each shape, or set `torch._dynamo.config.force_parameter_static_shapes = False`."
    ),
    "size.zero_or_one": tried(
        "torch always compiles sizes 0 and 1 apart from all others: avoid them (drop the last short batch, "
        "pad), or `torch._dynamo.decorators.mark_unbacked({tensor}, {dimension})`.",
        "a_size_of_one",
    ),
    "size.static": tried(
        "The size changed before, and the code was still made for one size only: the program was compiled with "
        "`dynamic=False`, the dimension is marked static, or Python code needs its number. Remove that, or "
        "pad to a few sizes.",
        "static_sizes",
    ),
    "size.many": tried(
        "Sizes change: `torch.compile(..., dynamic=True)` makes them symbols from the first call on. (By itself torch "
        "makes a size a symbol when it first changes, at the price of this recompile; with `dynamic=False`, never.)",
        "many_sizes",
    ),
    "size.changed": tried(
        "The size changes: call {calls} before the first call{who}, or use `torch.compile(..., dynamic=True)`. (By "
        "itself torch makes a size a symbol when it first changes, at the price of this recompile; with "
        "`dynamic=False`, never.)",
        "a_size",
        "a_size_marked",
    ),
    "size.computed": tried(
        "{names} is computed before the graph break, and its size follows from those of the arguments: end the break, "
        "or use `torch.compile(..., dynamic=True)`.",
        "a_size_after_a_break",
    ),
    "shape.more": AdviceEntry("And {number} more guards on sizes failed."),
    "shape.number": tried(
        "{made}: something needs that size as a number (Python code, an operator). Avoid it, or pad to one size.",
        "a_multiple",
    ),
    "shape.together": tried(
        "{made}: in the calls before, these sizes went together. Where they need not, make them differ in "
        "the first call, or mark both with `torch._dynamo.mark_dynamic`.",
        "two_sizes",
    ),
    "shape.branch": tried(
        "{made}: a branch on it, in the program or in torch, takes another way beyond. Keep to one side, or "
        "expect one compile for each{range}.",
        "a_range_of_sizes",
    ),
    "tensor.rank": tried(
        "{names} came with another number of dimensions: that always needs code of its own. Reshape "
        "to one (`unsqueeze`, `view`) before the call.",
        "a_rank",
    ),
    "tensor.dtype": tried(
        "{names} came in another dtype: code is made for each dtype. Convert before the call, or expect one "
        "compile for each and call each once to warm up. Under autocast, check that every call is inside it.",
        "a_dtype",
    ),
    "tensor.stride": tried(
        "{names} came with another memory layout: call `.contiguous()` on it before the compiled call.", "a_stride"
    ),
    "tensor.device": tried(
        "{names} came on another device: code is made for each device. Move it before the call.", "a_device"
    ),
    "tensor.requires_grad": tried(
        "{names} came with another `requires_grad`: with and without gradients is different code. Expect one "
        "compile for each, or `detach()` before the call where no gradient is wanted.",
        "gradients",
    ),
    "tensor.frozen": tried(
        "{names} was frozen or unfrozen (`requires_grad`) after the first compile: that is different code. Do it "
        "before the first call, or expect one compile for each.",
        "a_frozen_parameter",
    ),
    "tensor.alias": tried(
        "Two arguments were the same tensor (or shared memory) in one call and not in the other: `clone()` one "
        "of them, or always pass them alike.",
        "the_same_tensor",
    ),
    "tensor.inference": tried(
        "{name} was made under `torch.inference_mode` in one call and not in the other, which is different code. "
        "Make it the same way for every call; under `torch.no_grad` tensors are ordinary ones.",
        "an_inference_tensor",
    ),
    "tensor.dispatch": tried(
        "{name} {change}: that is different code. Make it the same way for every call.",
        "a_conjugated_view",
        "a_transform",
    ),
    "state.inference_mode": tried(f"Called inside and outside `torch.inference_mode`: {_SWITCHED}", "inference_mode"),
    "state.grad_mode": tried(
        f"Called with gradients on and off (`torch.no_grad`, `torch.set_grad_enabled`): {_SWITCHED}", "grad_mode"
    ),
    "state.autocast_state": tried(
        "Called inside and outside autocast, or under another one: enter `torch.autocast` around every call, or none.",
        "autocast",
    ),
    "state.autocast_dtype": tried(
        "Called under autocast with different dtypes: that is different code. Use one dtype for every call.",
        "autocast_dtypes",
    ),
    "state.num_threads": tried(
        "The number of threads changed after the first compile: call `torch.set_num_threads` at the start.", "threads"
    ),
    "state.default_dtype": tried(
        "The default dtype changed after the first compile: set it at the start.", "default_dtype"
    ),
    "state.deterministic_algorithms": tried(
        "`torch.use_deterministic_algorithms` changed after the first compile: set it at the start.", "deterministic"
    ),
    "state.allow_": tried(
        "The precision of matrix products changed after the first compile (`torch.set_float32_matmul_precision`, "
        "`torch.backends.cuda.matmul`): set it at the start.",
        "matmul_precision",
    ),
    "state.torch function modes": tried(
        "A torch function mode (a `TorchFunctionMode`, or `with torch.device(...)`) was entered "
        "around one call and not around the other: enter it around every call, or around none.",
        "function_mode",
    ),
    "state.default device": tried(
        "The default device changed (`torch.set_default_device`, `with torch.device(...)`): set it once, "
        "before the first call.",
        "default_device",
    ),
    "state.saved tensor hooks": tried(
        "Hooks on saved tensors that are graph modules (`torch.autograd.graph.saved_tensors_hooks`) "
        "were active in one call and not in the other: enter them around every call, or around none.",
        "saved_tensor_hooks",
    ),
    "state.torch.func transforms": AdviceEntry(
        f"Called inside and outside a `torch.func` transform (`vmap`, `grad`, ...): {_SWITCHED}"
    ),
    "state.forward AD level": tried(
        f"Called inside and outside `torch.autograd.forward_ad.dual_level`: {_SWITCHED}", "dual_level"
    ),
    "state.torch_function": tried(f"Called with `__torch_function__` on and off: {_SWITCHED}", "torch_function_off"),
    "state.race": AdviceEntry(
        "Where threads call a function together, one compiles what another is about to compile, and each such compile "
        "is wasted. Call the function once in each shape before the threads start."
    ),
    "state.other": AdviceEntry(
        "A global setting of torch changed between the calls. The code is made for each: set it once, before the first "
        "call."
    ),
    "backend": tried(
        "Another `torch.compile` of the same function ({change}): torch keeps the code of each, and both count towards "
        "the recompile limit. Call `torch.compile` once and keep its result; to compare backends, call "
        "`torch.compiler.reset()` between them.",
        "two_backends",
    ),
    "value.training": tried(
        "{name} switched (`model.train()`, `model.eval()`): one compile for each mode is expected, and "
        "both are kept. Warm up both; do not switch inside a loop.",
        "training",
    ),
    "value.closed_over": tried(
        "A variable that the function {function} closes over changed, and its value is part of the code: one compile "
        "for each. Pass it as an argument.",
        "a_closure",
    ),
    "value.global_integer": tried(
        "The global {name} changed, and its value is part of the code: pass it as an argument.", "a_global"
    ),
    "value.global": tried(
        "The global {name} changed, and its value is part of the code: set it once, before the first call.",
        "a_global_text",
    ),
    "value.learning_rate": tried(
        "{name} changed, as a scheduler changes it, and is a constant of the compiled step at first. From now on "
        "torch makes it an input of the graph (with `dynamic=False`, never); an optimizer that is made with "
        "`lr=torch.tensor(...)` needs no recompile.",
        "a_learning_rate",
    ),
    "value.integer_attribute": tried(
        "The integer attribute {name} changed, and its value is part of the code: one compile for each. "
        "Keep it in a tensor (`register_buffer`), pass it as an argument, or, on a module, set "
        "`torch._dynamo.config.allow_unspec_int_on_nn_module = True`.{plain}",
        "an_integer_attribute",
        "an_integer_attribute_unspecialized",
    ),
    "value.attribute": tried(
        "The attribute {name} changed, and its value is part of the code: set it once, before the first call. Where "
        "each call brings another object, each value is compiled apart: with few, call each once to warm up.",
        "an_attribute",
    ),
    "value.integer_again": tried(
        f"The integer {{name}} {_NEEDS_VALUE} (a loop count, an index, a branch). Pass a tensor, or take that "
        "code out of the function.",
        "a_loop_count",
    ),
    "value.integer": tried(
        "The integer {name} changed. From now on torch makes it a symbol (with `dynamic=False`, never); "
        "`torch.compile(..., dynamic=True)` does so from the first call on. (0 and 1 remain constants, and so "
        "does an integer that Python code needs to know.)",
        "an_integer",
    ),
    "value.constant": tried(
        "{name} is a constant of the code: each value of it is compiled apart. With few values call each once "
        "to warm up; with many, take the choice out of the compiled function.",
        "a_text",
    ),
    "value.float_again": tried(
        f"{{what}} {_NEEDS_VALUE} (a branch, a conversion). Keep it in a tensor, or take that code out of the "
        "function.",
        "a_float_again",
    ),
    "value.float": tried(
        "{what} changed. From now on torch makes it an input of the graph (with `dynamic=False`, or where an operator "
        "needs the number itself, never); `torch.compile(..., dynamic=True)`, or a tensor instead (`register_buffer` "
        "on a module), does so from the first call on.",
        "a_float",
        "a_float_in_a_tensor",
    ),
    "items.length": tried(
        "{names} has another number of items: a loop over it is unrolled, so each number is code of "
        "its own. Stack the items into one tensor, pad to one length, or loop outside and compile what is done "
        "to one item. Where the compiled code adds to it, add outside of it, from what it returns.",
        "a_length",
    ),
    "items.filled": tried(
        "{names} was empty in the first call and is not any more: the code for the empty one is not used again. Fill "
        "it before the first compiled call. Where each call adds to it, add outside of the compiled code, from what it "
        "returns.",
        "a_filled_dict",
        "a_list_that_is_added_to",
    ),
    "items.arguments": tried(
        "The call passes another number of arguments to a function that takes any (`*args, **kwargs`): each number is "
        "code of its own. Pass the same ones always, with a default where there is nothing to pass.",
        "keyword_arguments",
    ),
    "items.keys": tried(
        "{names} has other keys, or in another order: use the same keys for every call, in the same order.", "keys"
    ),
    "items.membership": tried(
        "What {names} contains changed, and the code asked: look it up before the call and pass the answer.",
        "membership",
    ),
    "object.own_attribute": tried(
        "{names} was the class's in one call, and the object's own in the other: set it on the object from the start "
        "(in `__init__`).",
        "an_attribute_of_its_own",
    ),
    "object.function": tried(
        "{names} is another function than before: each is compiled apart. Pass the same one always, or expect one "
        "compile for each. (A `def` or `lambda` that runs again gives the same code, which needs no other compile.)",
        "another_function",
    ),
    "object.identity": tried(
        "Another object came as {names}, and the code is bound to the object. Pass the same "
        "one, or pass the tensors and numbers in it instead.",
        "another_object",
    ),
    "object.freed": tried(
        "The object that the code was made for (an optimizer, a module, ...) is gone, and each new one is compiled "
        "anew. Make it once and use it again: start an optimizer over with `load_state_dict`, a module with "
        "`reset_parameters` or `load_state_dict`.",
        "a_freed_optimizer",
    ),
    "object.first_call": tried(
        "{name} is set in the first call (a cache that is filled, a lazy module): what is compiled for the first call "
        "is not used again, so expect one compile more. Or initialize it before the first compiled call.",
        "a_cache",
    ),
    "object.type": tried(
        "{names} is of another type than before: code is made for each type. Pass one type always.", "a_type"
    ),
    "object.none": tried(
        "{names} was None in one call and not in the other: with and without it is different code. Expect one "
        "compile for each and warm up both, or always pass something (a default, an empty tensor).",
        "none",
    ),
    "object.none_attribute": tried(
        "{names} was None in one call and not in the other: with and without it is different code. Set it once, before "
        "the first call, or expect one compile for each.",
        "a_bias_taken_away",
    ),
    "object.presence": tried(
        "{names} was there in one call and not in the other: define it from the start (in `__init__`).", "presence"
    ),
    "break.left_over": tried(
        "What was computed at a graph break is handed to the rest of the function, which was compiled for its "
        "value: end that break, and this recompile ends too.",
        "a_value_from_a_break",
    ),
}
