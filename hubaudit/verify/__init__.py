"""Load it and measure: a child process runs the model, and its figures stand beside the estimate's and exact mode's."""
