"""Every private name of torch that dynadiag leans on, in one place: a module for each layer that needs some.

``capture`` listens in the user's process, so it patches nothing and imports torch only when a program has done so.
``trial``, ``bisect``, ``minify`` and ``stages`` belong to processes of our own, which may be patched and then end.
"""
