"""The recording: one SQLite file that holds everything torch.compile said during a run.

The ground floor of the house: imports nothing else of dynadiag, and never torch.
"""
