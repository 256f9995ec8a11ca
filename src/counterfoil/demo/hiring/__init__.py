"""A hiring workflow of several days, and the matrix of kills that it survives."""
