"""The model's own code on fake tensors, and PyTorch's allocator replayed: what a CUDA device would report, without one."""
