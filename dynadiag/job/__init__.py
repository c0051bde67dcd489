"""The recordings of one distributed job: its processes, what its ranks have in common, and where they diverge.

Pure functions of recordings; torch is never imported. `open_job` reads a job, `find_divergence` compares its ranks.
"""
