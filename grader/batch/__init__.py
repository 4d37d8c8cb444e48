"""A class graded: who handed in what, each submission in its turn, and what is made of the results."""
