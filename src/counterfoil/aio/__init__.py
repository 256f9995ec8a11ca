"""The Async twins of the facades, under the same file names."""
