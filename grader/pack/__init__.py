"""What a student hands in: read without running it, and written to one file."""
