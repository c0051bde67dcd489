"""Compare runs to a baseline and to budgets.

A `Measurement` has the findings and figures of one run, a `Baseline` the known findings, a `Configuration` the budgets.
`check` compares them and returns a `CheckResult`.
"""
