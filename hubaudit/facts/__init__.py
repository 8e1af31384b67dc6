"""RepoSnapshot → ModelFacts: what the model is, by the word of its config and of its files."""
