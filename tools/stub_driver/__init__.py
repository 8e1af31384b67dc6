"""A CUDA driver and runtime that do nothing but answer."""
