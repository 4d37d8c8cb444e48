"""The autograder: a judge that is trusted, and a runner that is not.  Start at `python -m grader --help`."""

__version__ = "0.1.0"
