"""How fast a submission's functions are, for those who write them."""
