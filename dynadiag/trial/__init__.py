"""Run one candidate in isolation and report how it ended.

A `Plan` says what a trial changes, a `Runner` runs it (in a fresh interpreter, in a fork of the zygote, or in a fork of
the program stopped at its first compiled call), and an `Outcome` says how it ended.
"""
