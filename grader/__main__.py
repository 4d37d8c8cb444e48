"""`python -m grader`: see `grader/cli.py`."""

import gc

gc.disable()  # importing torch creates objects by the million, and none of them is garbage

from grader.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
