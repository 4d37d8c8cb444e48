"""Whether bubblewrap works here, found by trying, and the exact remedy where it does not.

What keeps it from starting differs by system; its own last line tells. `OBSTACLES` has a row for each.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from grader.sandbox.bubblewrap import recipe, run_confined
from grader.sandbox.levels import CannotStart

TRIAL_LIMIT_S = 20.0
GRADE_ELSEWHERE = "ask whoever runs this machine, or grade on another one"
APPARMOR_PROFILE = (
    "abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile grader-bwrap /usr/bin/bwrap flags=(unconfined) { userns, }\\n"
)


@dataclass(frozen=True)
class Obstacle:
    """Why nothing can be confined here, and what to do about it."""

    sentence: str
    remedy: str


@dataclass(frozen=True)
class Known:
    """An obstacle by what bubblewrap says of it."""

    says: str  # a regular expression
    sentence: str
    remedy: str


OBSTACLES = (
    Known(
        r"[Uu]nknown option|setuid",
        "bubblewrap is older than 0.8, or installed with the set-user-id bit",
        "install bubblewrap 0.8 or newer (Debian 12, Ubuntu 24.04, Fedora 38 have it), without the bit",
    ),
    Known(
        r"setting up uid map: Permission denied|Failed RTM_NEWADDR",
        "AppArmor forbids user namespaces (Ubuntu 23.10 and later)",
        f"printf '{APPARMOR_PROFILE}' | sudo tee /etc/apparmor.d/grader-bwrap && "
        "sudo apparmor_parser -r /etc/apparmor.d/grader-bwrap",
    ),
    Known(
        r"No permissions to create a? ?new namespace|[Cc]reating new namespace failed|userns|user namespaces? .*not",
        "this system forbids user namespaces, or has none",
        "sudo sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=15000; where that does not help, "
        f"{GRADE_ELSEWHERE}",
    ),
    Known(
        r"unshare: unshare failed|mount: ",
        "you are root here, but without the rights to mount (a container)",
        "grade as an ordinary user, on the host, or start the container with --cap-add SYS_ADMIN",
    ),
    Known(
        r"[Cc]an't mount proc",
        "this is a container, and part of its /proc is masked",
        "grade on the host, or start the container so: docker run --security-opt systempaths=unconfined "
        "--security-opt seccomp=unconfined --security-opt apparmor=unconfined; podman run --security-opt unmask=ALL",
    ),
)
MISSING = Obstacle(
    "bubblewrap is not installed",
    "sudo apt install bubblewrap (Debian, Ubuntu), or sudo dnf install bubblewrap (Fedora)",
)


def why_not_confined() -> Obstacle | None:
    """Start Python in a sandbox as a submission would be; None if that works. About 30 ms."""
    if sys.platform != "linux":
        return Obstacle("bubblewrap is for Linux", "grade on a Linux machine")
    with tempfile.TemporaryDirectory() as tree, tempfile.TemporaryFile() as output:
        program = [sys.executable, "-I", "-S", "-c", "print('confined')"]
        try:
            trial = run_confined([*recipe(Path(tree), "cpu")], program, None, output.fileno())
            trial.wait(TRIAL_LIMIT_S)
        except FileNotFoundError:
            return MISSING
        except CannotStart as error:
            return Obstacle(str(error), "grade on x86-64 or 64-bit Arm")
        except subprocess.TimeoutExpired:
            trial.kill()
            return Obstacle("a sandbox does not end", GRADE_ELSEWHERE)
        output.seek(0)
        said = output.read().decode(errors="replace").strip()
    return None if said == "confined" else _obstacle(said or f"it ended with {trial.returncode}")


def _obstacle(said: str) -> Obstacle:
    """The obstacle behind bubblewrap's words."""
    last = said.splitlines()[-1][:300]
    for known in OBSTACLES:
        if re.search(known.says, said):
            return Obstacle(f"{known.sentence} ({last})", known.remedy)
    return Obstacle(f"bubblewrap does not start ({last})", GRADE_ELSEWHERE)
