"""Pictures of an audit: memory by precision, against the context and against the batch, beside what the devices have."""
