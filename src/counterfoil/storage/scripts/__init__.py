"""One module per room: scripts that move its rows."""
