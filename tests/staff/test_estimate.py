"""Estimates, where the judge cannot share its device memory: a runner that times itself, with events that are told."""

import json
from types import SimpleNamespace

import pytest
import torch

from grader.bench import meters
from grader.bench.meters import OwnWord, estimated, request
from grader.clock import works
from grader.judge.replies import parse
from grader.judge.servers import Servers
from grader.judge.verdict import Outcome, Verdict
from grader.rubric import Rubric
from grader.runner.protocol import Malformed
from grader.sandbox.levels import RUNNER_FOLDER

from .conftest import ROOT

with pytest.MonkeyPatch.context() as patch:  # the runner's files import each other by their plain names
    patch.syspath_prepend(str(RUNNER_FOLDER))
    import estimate as runner_estimate

CALL_S = 1e-3
SOFTMAX = works.softmax(96, 40, torch.float32)
STEP = works.softmax_step(96, 40, torch.float32)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A GPU that has a call's time in it for each call that was made."""
    now = SimpleNamespace(calls=0, synchronized=0)

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = now.calls

        def elapsed_time(self, other):
            return (other.at - self.at) * CALL_S * 1e3  # ms

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: setattr(now, "synchronized", now.synchronized + 1))
    return now


def counting(clock, function=lambda x: torch.softmax(x, -1)):
    """A module with a softmax that counts its calls, and keeps the arguments of the last ones."""
    seen: list[torch.Tensor] = []

    def softmax(x):
        clock.calls += 1
        seen.append(x)
        return function(x)

    return SimpleNamespace(softmax=softmax), seen


def run(module, work, gradient=False) -> list[float]:
    header = json.loads(json.dumps(request(work, "softmax", {}, gradient)))
    return runner_estimate.Estimate(module, header, "cpu").run()


def test_an_estimate_is_the_time_of_a_call_in_rounds_of_twenty_milliseconds(clock):
    module, seen = counting(clock)
    assert run(module, SOFTMAX) == [pytest.approx(CALL_S)] * runner_estimate.ROUNDS
    warm = 2 * runner_estimate.MOST_SETS  # once to compile, once to see how long a call takes
    assert len(seen) == warm + runner_estimate.ROUNDS * 20


def test_the_arguments_of_calls_are_new_to_the_cache(clock):
    module, seen = counting(clock, lambda x: x)
    run(module, works.softmax(1024, 1024, torch.float32))  # 4 MiB: 48 of them, and no more
    places = [x.data_ptr() for x in seen]
    assert len(set(places)) == 48
    assert len(set(places[-20:])) == 20, "each is used as rarely as possible"
    assert not torch.equal(seen[0], seen[1])
    seen.clear()
    run(module, works.softmax(4096, 8192, torch.float32))  # 128 MiB: two are 256
    assert len({x.data_ptr() for x in seen}) == 2


def test_a_gradient_is_part_of_the_call_where_the_work_has_one(clock):
    went_back: list[int] = []

    def watched(x):
        y = torch.softmax(x, -1)
        if y.requires_grad:
            y.register_hook(lambda gradient: went_back.append(1))
        return y

    module, seen = counting(clock, watched)
    run(module, STEP, gradient=True)
    assert len(went_back) == len(seen)
    went_back.clear()
    run(module, STEP)
    assert not went_back


@pytest.mark.parametrize("seconds", [[0.0, 1e-3], [1e-3], [float("inf"), 1e-3], ["1", "2"], [-1e-3, 1e-3]])
def test_a_time_that_is_none_is_malformed(seconds):
    with pytest.raises(Malformed):
        parse({"number": 1, "status": "estimated", "seconds": seconds})


class Telling:
    """A child that gives one reply."""

    def __init__(self, reply) -> None:
        self.reply = parse({"number": 1, **reply})

    def request(self, header, parts, limit_s, of_s):
        return self.reply, bytearray()

    def malformed(self, what):
        return Outcome(Verdict.CRASH, f"sent {what}")


def test_what_a_call_raises_is_told_and_another_reply_is_a_crash():
    raised = {"status": "raised", "type": "ValueError", "out_of_memory": False, "missing": None, "message": "no",
              "where": None, "traceback": "", "accesses": []}  # fmt: skip
    with pytest.raises(Outcome, match="ValueError: no"):
        estimated(Telling(raised), {}, "softmax")
    with pytest.raises(Outcome, match="an answer where nothing was asked"):
        estimated(Telling({"status": "timed"}), {}, "softmax")
    assert estimated(Telling({"status": "estimated", "seconds": [1e-3, 2e-3]}), {}, "softmax") == [1e-3, 2e-3]


def test_an_estimate_is_the_middle_of_the_rounds_beside_the_baselines(monkeypatch):
    """Both by the same verb: the submission's in its own child, the baseline in one of the judge's."""
    entry = Rubric.read().problems["softmax"].speed["speed_backward"]
    asked: list[dict] = []

    def estimated(child, header, function):
        asked.append(header)
        return [1e-3, 2e-3, 3e-3] if child == "theirs" else [4e-3, 5e-3, 9e-3]

    own = SimpleNamespace(request=lambda *a: (parse({"number": 1, "status": "loaded", "names": []}), b""), end=print)
    theirs = SimpleNamespace(child="theirs", require=lambda name: None, close=lambda: None)
    monkeypatch.setattr(meters, "estimated", estimated)
    monkeypatch.setattr(meters, "RunnerChild", lambda server: own)
    monkeypatch.setattr(meters, "CheckProcess", lambda *arguments: theirs)
    servers = SimpleNamespace(own=lambda: None)
    times = OwnWord(SimpleNamespace(folder=None), servers).beside(STEP, entry)
    assert (times.time_s, times.iqr_s, times.baseline_s, times.gpu) == (2e-3, pytest.approx(2e-3), 5e-3, None)
    assert [header["function"] for header in asked] == ["softmax", "device_copy"]
    assert [header["gradient"] for header in asked] == [1, None], "a copy has none"
    assert [[spec["requires_grad"] for spec in header["inputs"]] for header in asked] == [[True, False], [False, False]]


def test_the_runners_child_does_it(servers: Servers, tmp_path):
    """Without a GPU it comes as far as the event, which there is none of."""
    if servers.device != "cpu":
        pytest.skip("there is a GPU: see test_gpu_bench.py")
    from grader.judge.submission import CheckProcess

    (tmp_path / "softmax.py").write_text("import torch\n\n\ndef softmax(x):\n    return torch.softmax(x, -1)\n")
    process = CheckProcess(servers, tmp_path, "softmax", 60.0)
    try:
        process.require("softmax")
        with pytest.raises(Outcome, match="a timed call of softmax"):
            estimated(process.child, request(SOFTMAX, "softmax", {}, False), "softmax")
    finally:
        process.close()


def test_estimates_enter_no_grade():
    """Nothing but `bench` asks for one."""
    askers = [path for path in (ROOT / "grader").rglob("*.py") if '"estimate"' in path.read_text()]
    assert {str(path.relative_to(ROOT)) for path in askers} == {"grader/bench/meters.py", "grader/runner/verbs.py"}
