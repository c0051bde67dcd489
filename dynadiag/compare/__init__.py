"""Times one function uncompiled and compiled in several ways, each variant in its own process: does compiling pay?"""
