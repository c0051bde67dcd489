"""The advice on graph breaks and failed compiles: the part of the table in `advice_table`."""

from __future__ import annotations

from dynadiag.explanation.advice_entry import AdviceEntry, AdviceTrial, tried, usual

__all__ = ["CASES", "FAMILIES"]

_REORDER = "torch._dynamo.config.reorderable_logging_functions"
_AFTERWARDS = "the call then comes after the graph and breaks nothing."

# Graph breaks where the case is known, and failed compiles.
CASES = {
    "print.reorder": tried(
        f"`{_REORDER}.add(print)`: {_AFTERWARDS}{{limit}}", "prints_a_text", "prints_a_tensor", "prints_numbers"
    ),
    "print.as_text": tried(
        f'Print a text, such as `print(f"{{{{x.shape}}}}")`, and `{_REORDER}.add(print)`: {_AFTERWARDS} torch moves '
        "only texts, numbers and tensors.{limit}",
        "prints_a_size",
        "prints_a_list",
    ),
    "print.afterwards": tried("Print after the compiled call, from what it returns.", "prints_a_dict"),
    "warn.reorder": tried(f"`{_REORDER}.add(warnings.warn)`: {_AFTERWARDS}", "warns"),
    "log.ignore": tried(
        "`torch._dynamo.config.ignore_logging_functions.add({method})`{like}: compiled code then leaves the call out.",
        "logs",
    ),
    "hook.forward_alone": tried(
        "Register the hook on the module that is compiled, or compile the hooked module's forward alone "
        "(`module.forward = torch.compile(module.forward)`): its hooks then run around the compiled code. (With "
        "`torch._dynamo.config.compiled_autograd = True`, which torch advises, a `backward()` outside the compiled "
        "function raises `BackwardState requires CompiledAutograd`.)",
        "hooked_module",
    ),
    "backward.trace": tried(
        "Call `backward()` after the compiled call, on the loss that it returns. Or set "
        "`torch._dynamo.config.trace_autograd_ops = True`: it is then part of the graph.",
        "goes_backward",
        "goes_backward_in_the_graph",
    ),
    "torch.capture_scalar_outputs": AdviceEntry(
        "config.capture_scalar_outputs = True", (AdviceTrial("takes_an_item"),), source="torch"
    ),
    "torch.allow_rnn": AdviceEntry("config.allow_rnn=True", (AdviceTrial("has_an_rnn"),), source="torch"),
    "torch.graph_break": AdviceEntry(
        "Remove the `torch._dynamo.graph_break()` call.", (AdviceTrial("asks_for_a_break"),), source="torch"
    ),
    "torch.capture_dynamic_output_shape_ops": AdviceEntry(
        "config.capture_dynamic_output_shape_ops = True", (AdviceTrial("finds"),), source="torch"
    ),
    "number.where": tried(
        "Keep the number a tensor, without `.item()`, and compute both sides: `torch.where({condition}, a, b)`.",
        "branches_on_an_item",
        "branches_on_a_captured_item",
        "must_branch_on_an_item",
    ),
    "number.cond": tried(
        "Where only one side may run, keep it a tensor too: `torch.cond({condition}, true_fn, false_fn, operands)`.",
        "takes_one_side_by_an_item",
    ),
    "number.cond_of_size": tried(
        "Let the graph choose: `torch.cond({condition}, true_fn, false_fn, operands)`.", "branches_on_how_many"
    ),
    "number.mark_dynamic": tried(
        "Mark the size dynamic (`torch._dynamo.mark_dynamic`) and not unbacked: the branch is then decided while "
        "tracing, and guarded.",
        "marks_a_size_unbacked",
    ),
    "number.check": tried(
        "Where the answer is always the same, {option}say so before this line: `torch._check({condition})` or "
        "`torch._check({opposite})`. The other side is then left out, and a run that needs it raises an exception.",
        "branches_as_always",
        "must_branch_as_always",
    ),
    "number.require": tried(
        "One side only raises: {option}write `torch._check({condition})` in the place of the branch. The check is "
        "then part of the graph, and raises a RuntimeError.",
        "raises_by_an_item",
        "must_raise_by_an_item",
    ),
    "number.loop": tried(
        "Keep the number a tensor, without `.item()`, and let the graph loop: "
        "`torch.while_loop(condition_fn, body_fn, operands)`.",
        "loops_by_an_item",
    ),
    "number.split": AdviceEntry("Or leave `fullgraph=True` out: the graph ends at this line, and Python goes on."),
    "wrapper.ddp": tried(
        "Compile the module, then wrap it: `DDP(torch.compile(module))`. Then there is no break of DDP's, and torch "
        "splits the graph at DDP's buckets as it does for `torch.compile(DDP(module))`.",
        "wrapped_by_ddp",
    ),
    "wrapper.fsdp2": tried(
        "Compile the modules that `fully_shard` is called on, each by itself and before or after that call "
        "(`for block in model.blocks: block.compile(); fully_shard(block)`), and not the module that calls them: "
        "FSDP2's hooks around each of them run in Python.",
        "wrapped_by_fsdp2",
    ),
    "exception.check": tried(
        "Check the condition before the compiled call, or mend what raises. Where Python raises nothing here, torch "
        "traces the line wrongly: move it out of the compiled function.",
        "raises",
    ),
    "chance.branch": tried(
        "What is drawn decides which code runs, and passed in it would make each way a compile of its own. Compile "
        "what the branch calls, and leave the branch in Python; or draw a tensor and choose between tensors: "
        "`torch.where(torch.rand(()) < p, a, b)`.",
        "drops_a_layer",
    ),
    "rest.unseen": tried(
        "Dynamo goes on after a break only where the function has a tensor or a module in a variable (or a list, tuple "
        "or dict), or names `torch`. It does not look into objects (a dataclass, a model's output): move what follows "
        "into a function that takes their tensors.",
        "hides_tensors_in_an_object",
    ),
    "failed.mark_dynamic": tried(
        "Drop the mark, or use `torch._dynamo.maybe_mark_dynamic`, which lets it be {value}; for a size that may vary, "
        "take the number out of the code at this line.",
        "marks_a_fixed_size",
    ),
    "failed.range": tried(
        "Mark the range that the code holds for, `{held}` (`mark_dynamic(tensor, dimension, min=..., max=...)`), or "
        "use `torch._dynamo.maybe_mark_dynamic`, which compiles again beyond it; for one code for all, take out the "
        "branch on the size.",
        "marks_a_wide_range",
    ),
    "failed.rest": tried(
        "torch failed on what it made of the rest of `{function}` behind the graph break at line {line}: end that "
        "break, and there is no such rest.",
        "breaks_in_a_transform",
    ),
    "failed.no_triton_driver": AdviceEntry(
        'Triton has no driver here that could run the kernel: none for a CPU (`cpu_backend = "triton"`), and no GPU. '
        "`dynadiag explain --target h100` records what a GPU would get, and `dynadiag bisect --rungs triton` runs "
        "the kernels in Triton's interpreter."
    ),
    "failed.no_autograd": tried("Register one with `torch.library.register_autograd`.", "operator_without_autograd"),
    "failed.coroutine": tried(
        "Compile the plain function that it calls, and not the `async def` or generator: torch cannot go on in the "
        "middle of one.",
        "a_coroutine",
    ),
    "failed.no_fake": tried(
        "Tell torch the shape and dtype of what `{name}` returns: `torch.library.register_fake`.",
        "operator_without_a_fake",
    ),
    "failed.backend": tried("The exception comes from {stage}: mend it there, or use another.", "failing_backend"),
    "failed.bisect": AdviceEntry(
        "`dynadiag bisect` names the part of the compiler that is at fault.", otherwise="unchecked"
    ),
    "failed.minify": AdviceEntry(
        "`dynadiag minify` writes a small program with this failure, for a bug report.", otherwise="unchecked"
    ),
}

# What usually ends graph breaks of a family (remedies.py).
FAMILIES = {
    "outside": usual(
        "Move this out of the compiled function, before or after its call, and pass the result in.",
        GB0007="sleeps",
        GB0059="opens_a_file",
        GB4198="copies_a_module",
        GB0156="draws_from_a_generator",
        GB0208="asks_for_the_threads",
    ),
    "disable": usual(
        "Code that need not be compiled can stand in a function under `@torch.compiler.disable`: "
        "the break stays, but at a place of your choice."
    ),
    "error": usual("The uncompiled program may fail here too: run it with TORCH_COMPILE_DISABLE=1 and compare."),
    "assert.shapes": usual(
        "Drop the assertion, or make it on shapes or Python values.",
        GB0170="asserts_values",
    ),
    "assert.async": usual(
        "To keep it, use `torch._assert_async(condition, message)`, which stays in the graph.",
        GB0170="asserts_in_the_graph",
    ),
    "branch.inside": tried(
        "The branch is in what this line calls ({place}): give arguments with which it is not reached, or make the "
        "call before or after the compiled function.",
        "clips_and_checks",
    ),
    "branch.where": usual(
        "Where both sides are cheap and free of side effects, compute both and choose: `torch.where(condition, a, b)`.",
        GB0170="branches_on_values",
    ),
    "branch.cond": usual(
        "Where only one side may run: `torch.cond(condition, true_fn, false_fn, operands)`.",
        GB0170="branches_to_one_side",
    ),
    "branch.shapes": usual(
        "Where the condition can come from shapes or Python values, take it from them: "
        "it is then decided while tracing, and guarded.",
        GB0170="branches_on_a_count",
    ),
    "item.tensor": usual(
        "Keep the value a tensor: most arithmetic, comparison and indexing takes a 0-dimensional one.",
        GB0124="multiplies_by_an_item",
    ),
    "item.capture": usual(
        "If a Python number is needed, set `torch._dynamo.config.capture_scalar_outputs = True`: "
        "it becomes a symbol of the graph.",
    ),
    "item.afterwards": usual(
        "If it is only for logging, collect tensors and convert them after the compiled call.",
        GB0124="logs_an_item",
        GB0109="logs_a_list",
    ),
    "shape.capture": usual(
        "For shapes that depend on values (`nonzero`, `unique`, boolean masks) set "
        "`torch._dynamo.config.capture_dynamic_output_shape_ops = True`.",
    ),
    "shape.fixed": usual(
        "Keep the shape fixed: multiply by the mask, or choose with `torch.where`.", GB0036="selects_by_a_mask"
    ),
    "limit.end": usual("End what makes the recompiles (each is listed in the report)."),
    "limit.raise": usual("If they are wanted, raise `torch._dynamo.config.recompile_limit`."),
    "log.afterwards": usual("Log after the compiled call, from values that it returns."),
    "log.reorder": usual(
        "`print` and `warnings.warn` can come after the graph instead: add them to "
        "`torch._dynamo.config.reorderable_logging_functions`."
    ),
    "log.ignore_all": usual(
        "Methods of loggers can be left out while compiling: add them to "
        "`torch._dynamo.config.ignore_logging_functions`."
    ),
    "asked.remove": usual("Remove the call that asks for it."),
    "skipped.custom_op": usual(
        "A C, C++ or CUDA function on tensors can be made an operator with `torch.library.custom_op` "
        "(and `register_fake`): it then stays in the graph.",
        GB0007="calls_a_c_function",
    ),
    "skipped.constant": usual(
        "A function with the same result whenever it is called can be marked with "
        "`torch.compiler.assume_constant_result`.",
        GB0007="calls_a_constant_function",
    ),
    "context.outside": usual(
        "Enter the context outside the compiled function, around its call.", GB0142="enters_a_lock"
    ),
    "context.inside": usual(
        "Or compile the function that is called inside the `with` block, not the one that holds it.",
        GB0142="works_under_a_lock",
    ),
    "nested.jagged": usual(
        "Use the jagged layout: `torch.nested.nested_tensor(..., layout=torch.jagged)`.", GB0016="a_nested_tensor"
    ),
    "sparse.outside": usual(
        "Make and convert sparse tensors outside the compiled function; work on dense ones inside.",
        GB0015="takes_a_sparse_tensor",
    ),
    "random.draw": usual(
        "Draw with `torch.rand` and its like, without a generator; or draw outside and pass the result in."
    ),
    "iterate.list": usual("Build a list in a plain loop instead."),
    "iterate.item": usual("Or compile the function that is called for each item, not the one that holds the loop."),
    "autograd.outside": usual(
        "Do the autograd bookkeeping outside the compiled function.",
        GB0206="requires_gradients",
        GB0108="retains_a_gradient",
    ),
    "autograd.function": usual(
        "For a backward of your own, write a `torch.autograd.Function` with static methods, "
        "or `torch.library.custom_op` with `register_autograd`."
    ),
    "memory.allocate": usual("Allocate a new tensor instead of resizing in place.", GB0126="resizes"),
    "numpy.torch": usual(
        "Use the torch function of the same meaning.", GB0087="makes_an_array", GB0294="takes_a_median"
    ),
    "numpy.before": usual("Or convert (`torch.from_numpy`) before the call."),
    "triton.wrap": usual("Wrap the launch with `torch.library.triton_op` and `wrap_triton`."),
    "operator.pure": usual(
        "Make that function pure: tensors in, tensors out, no mutation of what surrounds it, "
        "and no graph break inside.",
        GB0067="appends_in_a_branch",
    ),
    "fake.register": usual(
        "For an operator of your own, give it `torch.library.register_fake` with the right shape and dtype."
    ),
    "exception.before": usual("Check the condition before the compiled call."),
    "object.plain": usual(
        "Use plain attributes and methods of plain objects or modules: no computed names, no custom attribute hooks."
    ),
}
