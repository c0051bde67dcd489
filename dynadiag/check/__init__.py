"""Compare runs to a baseline and to budgets. `Measurement` has the findings and figures of one run, `Baseline` the
known findings, `Configuration` the budgets. `check` compares them and returns a `CheckResult`.
"""
