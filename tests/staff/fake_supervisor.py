"""A supervisor as the local engine starts one, which judges nothing: it answers as the tree says (`recorded.py`).

Besides: `dies once FILE`, `dies always`, `says garbage`, `says much`, `says nothing`.
"""

import base64
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))


def main():
    job = json.loads(sys.stdin.readline())
    files = {name: base64.b64decode(content) for name, content in job["files"].items()}
    text = files.get("gelu.py", b"").decode()
    print(json.dumps({"done": 0, "of": 1, "check": "gelu.sizes"}), flush=True)
    for line in text.splitlines():
        match line.split():
            case ["dies", "once", flag] if not Path(flag).exists():
                Path(flag).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            case ["dies", "always"]:
                print("the end is near", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            case ["says", "garbage"]:
                print("{'no': json}", flush=True)
            case ["says", "much"]:
                sys.stdout.write("x" * (100 << 20))
                sys.stdout.flush()
            case ["says", "nothing"]:
                time.sleep(600)
            case ["says", "error"]:
                print(json.dumps({"error": "the checks here are others"}), flush=True)
    from tests.staff import recorded

    asked = (job[name] for name in ("submission", "attempt", "tree_sha256", "checks_sha256", "problems"))
    submission, attempt, tree_sha256, checks_sha256, problems = asked
    one = recorded.Job(submission, attempt, files, tree_sha256, checks_sha256, tuple(problems), 1.0)
    result = json.loads(recorded.answer(one))
    seen = {"cpus": sorted(os.sched_getaffinity(0)), "gpu": os.environ.get("CUDA_VISIBLE_DEVICES"), "pid": os.getpid()}
    result["run"]["host"] = json.dumps(seen)
    print(json.dumps({"result": result}), flush=True)


main()
