"""Test kit: real neighbours and instruments that judge a workflow from outside."""
