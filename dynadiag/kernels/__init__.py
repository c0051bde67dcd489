"""From a recording to its kernels."""
