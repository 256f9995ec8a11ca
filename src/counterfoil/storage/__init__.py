"""What Counterfoil does to its tables: named statements, and scripts that yield them."""
