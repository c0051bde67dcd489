"""Kernels of a recording: their source, the graph nodes and user lines behind them, and their lower-level stages.

`read_modules` reads the modules that Inductor generated, with their graphs, and lists their kernels. `stages` compiles
one kernel, `kernel_diff` compares the kernels of two recordings, and `document_links` links the lines of graphs and
generated code to the user's lines.
"""
