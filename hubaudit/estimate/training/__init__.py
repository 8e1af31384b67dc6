"""Training → Estimate: recipes, optimizers, adapters, activations, losses, sharding, and the phases of a step. Pure arithmetic."""
