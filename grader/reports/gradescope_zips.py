"""Two autograders to upload to Gradescope, each a zip: `preview_zip` and `publish_zip`.

The *preview* runs the public self-check when a student hands in. It holds what students have anyway, so nothing in it
is secret, and it is not confined: its score is feedback. The *publish* one runs no code of a student: it gives out what
the batch found, by the submission's id. A submission that the batch does not know ends with 3 and without a result,
which Gradescope counts as an error of the autograder: any result would be a grade, and a missing one is not zero.
Source: gradescope/autograder_samples, docs/specs.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from grader.files import zipped
from grader.release.plan import Plan, Unplanned
from grader.release.scan import scan
from grader.release.secrets import Secrets
from grader.rubric import Rubric

TEMPLATES = Path(__file__).parent / "templates"
SETUP, RUN = "setup.sh", "run_autograder"  # at the top of the zip, by these names


def preview_zip(root: Path, rubric: Rubric) -> bytes:
    """The autograder that checks what is public: the release of the repository at `root`, after its scan.

    Raises `Unplanned` where it cannot be released.
    """
    plan = Plan.of(root)
    if findings := scan(plan, Secrets.of(root), root):
        more = f" and {len(findings) - 1} more, which `release` names" if len(findings) > 1 else ""
        raise Unplanned(f"something of staff's would be in it: {findings[0]}{more}")
    release = {f"release/{name}": content for name, content in plan.files.items()}
    problems = json.dumps(list(rubric.problems)).encode()
    return _zip("preview", {**release, "problems.json": problems})


def publish_zip(results: Mapping[str, bytes]) -> bytes:
    """The autograder that gives out `results.json` by Gradescope's id of a submission."""
    return _zip("publish", {f"results/{number}.json": content for number, content in results.items()})


def _zip(kind: str, contents: Mapping[str, bytes]) -> bytes:
    scripts = {name: (TEMPLATES / kind / name).read_bytes() for name in (SETUP, RUN)}
    return zipped({**contents, **scripts}, programs=(SETUP, RUN))
