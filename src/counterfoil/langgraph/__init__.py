"""LangGraph graphs on top of the ledger: saver, node wrapper, checkpoint policy."""
