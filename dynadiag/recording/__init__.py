"""The recording: one SQLite file with everything that torch.compile reported during a run.

This is the lowest layer: it imports nothing of dynadiag but its errors, and never torch. `journal` runs in the user's
process, and imports only the standard library.
"""
