"""The values of each node of a compiled graph, in the recorded process: run node by node, and compared with compiled
code.
"""
