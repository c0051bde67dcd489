"""Why a start of a program compiles although it was compiled before: what each cache was asked in one run or two.

`read_caches` makes a `CacheReport` of recordings. Of two runs it names the components of a key that changed, and what
in the program changed them. `start_phases` says where the seconds of a start go.
"""
