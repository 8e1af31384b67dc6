"""ModelFacts + Workload → Estimate. Pure arithmetic; every figure is a formula over named inputs."""
