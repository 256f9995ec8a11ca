"""What is known of real downstreams and their clients: exceptions, hidden retries, answers, look-ups; one file each."""

from counterfoil.providers.retries import hidden_retries
from counterfoil.providers.tables import classify

__all__ = ["classify", "hidden_retries"]
