"""What only staff use."""
