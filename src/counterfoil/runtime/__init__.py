"""What goes on by itself: sending what is due, and settling what nobody knows."""
