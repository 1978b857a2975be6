"""What people look at: curves, plots, the page of a run."""
