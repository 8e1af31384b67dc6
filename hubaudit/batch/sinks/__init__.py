"""What a journal's rows are written to: one format each."""
