"""The folder that a recorded program has first on its path, until its first module has run: ``sitecustomize``."""
