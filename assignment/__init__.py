"""The assignment. Each module holds one problem: fill in its functions."""
