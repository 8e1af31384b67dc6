"""Header bytes → TensorInfo: the file formats weights come in. Pure, and trusting nothing that a file says of itself."""
