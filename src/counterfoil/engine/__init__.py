"""What spreads the work on workflows: an engine wakes them, on one machine or on many. Their rows stay the truth."""
