"""Callbacks for trainers: `transformers.DynadiagCallback` and `lightning.DynadiagCallback`."""
