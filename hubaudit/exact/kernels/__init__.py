"""What CUDA kernels do with memory that their results do not show: rules, each found in torch's source and held against its binary."""
