"""Pure decisions: no input or output, clock, randomness or logging."""
