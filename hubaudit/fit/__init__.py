"""Estimate × Hardware → does it fit, how much room is left, and what is the most that fits."""
