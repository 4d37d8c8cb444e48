"""What a student sees of a kernel."""
