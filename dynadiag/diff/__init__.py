"""Compare two recordings: match their compiles, and find the first stage at which what was compiled differs.

`match_compiles` pairs compiles by code and content. `canonical_graph` gives a graph without names, addresses and line
numbers; `graph_changes` and `first_change` compare two of them.
"""
