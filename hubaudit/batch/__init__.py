"""Many repositories: which, by whom, how fast, what is kept of each, and what is made of it all."""
