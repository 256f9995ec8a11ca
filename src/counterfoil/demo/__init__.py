"""Demonstrations that run on this machine: no account, no cloud."""
