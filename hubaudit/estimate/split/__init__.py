"""One model on several devices: which share of it each holds, by the rules of the engine that runs it."""
