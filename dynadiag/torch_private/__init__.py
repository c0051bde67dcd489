"""Every private name of torch that dynadiag uses, with one module per layer that needs some.

``capture`` runs in the user's process: it patches nothing that stays and imports torch only after the program did.
``trial``, ``bisect``, ``minify`` and ``kernel_compilation`` run in processes of our own, which they may patch.
"""
