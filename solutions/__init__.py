"""Complete versions of the modules in `assignment`, with the same names and signatures. Staff only."""
