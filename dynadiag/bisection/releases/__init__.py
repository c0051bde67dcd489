"""Find between which two releases of torch a failure came or was mended.

`package_index` says which releases there are, `environments` installs them, `release_search` chooses the next one to
try, and `release_trials` runs the program there.
"""
