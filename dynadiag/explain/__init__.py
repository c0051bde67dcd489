"""From a recording to an explanation: breaks, recompiles, time, advice."""
