"""Adapters for real downstreams, one file each: what they can do, and what their clients' exceptions mean."""
