"""Whatever a runner says, the judge ends with a reply, a crash or a timeout, in time and in bounded memory.

The runner here is a thread on the other end of the socket that says what a test, or hypothesis, tells it to.
"""

import contextlib
import gc
import json
import os
import socket
import subprocess
import threading
import time
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grader.judge import replies
from grader.judge.cases import Input
from grader.judge.child import PAYLOAD_FLOOR_BYTES, RunnerChild
from grader.judge.compare import assert_matches, assert_raises
from grader.judge.expected import Expected
from grader.judge.output import OutputPipe
from grader.judge.reference import gelu as reference
from grader.judge.server import Line
from grader.judge.submission import CheckProcess, Submission
from grader.judge.verdict import Outcome, Verdict
from grader.runner import protocol
from grader.runner.tensors import DTYPES
from grader.sandbox.levels import Unconfined
from grader.sandbox.processes import kill_descendants

Speak = Callable[[socket.socket], None]
NO_PROCESS = 2**22 + 1  # Linux numbers processes up to 2**22
GRACE_S = 1.0  # beyond a limit, on a busy machine

many = settings(max_examples=80, deadline=None, database=None)


class FakeServer:
    """Stands in for the runner's server: its one child is a thread, which may stay until the judge hangs up."""

    def __init__(self, speak: Speak, stays: bool = False) -> None:
        self.speak, self.stays = speak, stays
        self.left, self.excess = threading.Event(), None

    def open(self, modules: Sequence[str] = ()) -> Line:
        ours, theirs = socket.socketpair()
        output, errors = OutputPipe(), OutputPipe()
        output.close_write()
        errors.close_write()
        self.thread = threading.Thread(target=self._live, args=(theirs,), daemon=True)
        self.thread.start()
        return Line(NO_PROCESS, NO_PROCESS, ours, output, errors)

    def how_ended(self, pid: int, seconds: float) -> dict[str, int] | None:
        return {"code": 0} if self.left.is_set() else None

    def end(self, pid: int) -> None:
        self.thread.join(5)
        assert not self.thread.is_alive()

    def _live(self, conversation: socket.socket) -> None:
        with conversation, contextlib.suppress(OSError, protocol.ConversationError):
            self.speak(conversation)
            while self.stays and conversation.recv(1 << 16):
                pass
        self.left.set()


def saying(content: bytes) -> Speak:
    """A runner that hears the request and sends these bytes."""

    def speak(conversation: socket.socket) -> None:
        protocol.receive(conversation, 1 << 30)
        conversation.sendall(content)

    return speak


def framed(header: object, payload: bytes = b"") -> bytes:
    """A message whose lengths are right."""
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return protocol.PREFIX.pack(len(encoded), len(payload)) + encoded + payload


def ask(speak: Speak, stays: bool = False, limit_s: float = 5.0) -> tuple[Any, bytearray] | Outcome:
    """One request to a child that speaks like this: its reply, or the outcome. Anything else is raised."""
    child = RunnerChild(FakeServer(speak, stays))  # type: ignore[arg-type]
    start = time.monotonic()
    try:
        reply = child.request({"verb": "load"}, (), limit_s, limit_s)
    except Outcome as outcome:
        reply = outcome
    assert time.monotonic() - start < limit_s + GRACE_S
    child.end()
    if isinstance(reply, Outcome):
        assert reply.verdict in (Verdict.CRASH, Verdict.TIMEOUT)
        assert_readable(reply)
    return reply


def assert_readable(outcome: Outcome) -> None:
    """The words are short, and nothing in them moves a terminal."""
    assert outcome.message
    assert len(str(outcome)) < 4000
    kinds = {unicodedata.category(letter) for letter in str(outcome) if letter not in "\n\t"}
    assert not kinds & {"Cc", "Cf", "Cs", "Zl", "Zp"}


RIGHT = {"number": 1, "status": "loaded", "names": ["gelu"]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


# Bytes


def test_a_right_reply_is_taken() -> None:
    reply, payload = ask(saying(framed(RIGHT, b"abc")))
    assert reply == replies.Loaded(**RIGHT)
    assert payload == b"abc"


@many
@given(content=st.binary(max_size=200), stays=st.booleans())
@example(content=b"", stays=False)
@example(content=b"\x80\x04\x95PASS", stays=False)
def test_arbitrary_bytes_are_no_reply(content: bytes, stays: bool) -> None:
    assert isinstance(ask(saying(content), stays, limit_s=0.05), Outcome)


@many
@given(
    lengths=st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)),
    body=st.binary(max_size=100),
)
@example(lengths=(2**32 - 1, 0), body=b"")
@example(lengths=(20, 2**63), body=b"")
@example(lengths=(20, 2**64 - 1), body=b"{}")
@example(lengths=(0, 0), body=b"")
def test_wrong_lengths_are_no_reply(lengths: tuple[int, int], body: bytes) -> None:
    assert isinstance(ask(saying(protocol.PREFIX.pack(*lengths) + body)), Outcome)


@many
@given(cut=st.integers(0, len(framed(RIGHT, bytes(40))) - 1), stays=st.booleans())
def test_a_reply_cut_off_anywhere_is_a_crash_or_a_timeout(cut: int, stays: bool) -> None:
    outcome = ask(saying(framed(RIGHT, bytes(40))[:cut]), stays, limit_s=0.05)
    assert isinstance(outcome, Outcome)
    assert outcome.verdict is (Verdict.TIMEOUT if stays else Verdict.CRASH)


@pytest.mark.parametrize(
    "prefix",
    [(protocol.HEADER_LIMIT_BYTES + 1, 0), (2, PAYLOAD_FLOOR_BYTES + 1), (2, 2**63)],
    ids=["header", "payload", "absurd"],
)
def test_a_message_over_the_limit_is_refused_before_it_is_read(prefix: tuple[int, int]) -> None:
    start = time.monotonic()
    outcome = ask(saying(protocol.PREFIX.pack(*prefix)), stays=True)
    assert isinstance(outcome, Outcome)
    assert outcome.verdict is Verdict.CRASH
    assert "more than is allowed" in outcome.message
    assert time.monotonic() - start < 2.0


# Headers


@many
@given(header=JSON)
def test_arbitrary_json_is_no_reply(header: object) -> None:
    assert isinstance(ask(saying(framed(header))), Outcome)


@many
@given(kept=st.sets(st.sampled_from(sorted(RIGHT))), changes=st.dictionaries(st.sampled_from([*RIGHT, "more"]), JSON))
def test_a_reply_with_a_field_missing_or_changed_is_no_reply(kept: set[str], changes: dict[str, object]) -> None:
    header = {name: RIGHT[name] for name in kept} | changes
    reply = ask(saying(framed(header)))
    honest = header.keys() == RIGHT.keys() and type(header["number"]) is int and header["number"] == 1
    assert isinstance(reply, Outcome) or (honest and header["status"] == "loaded")


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b'{"number":' * 40_000 + b"1" + b"}" * 40_000,
        b'{"number": 1, "status": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"number": 1, "status": "loaded", "names": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"number": 1, "status": "loaded", "names": [], "names": 7}',
        b'{"number": NaN, "status": "loaded", "names": []}',
        b'{"number": Infinity, "status": "loaded", "names": []}',
        b'{"number": 1.0, "status": "loaded", "names": []}',
        b'{"number": true, "status": "loaded", "names": []}',
        b'{"number": "1", "status": "loaded", "names": []}',
        b'{"number": ' + b"1" * 4000 + b', "status": "loaded", "names": []}',
        b'{"number": ' + b"1" * 100_000 + b', "status": "loaded", "names": []}',
        b'{"number": -1, "status": "loaded", "names": []}',
        b'{"number": 2, "status": "loaded", "names": []}',
        b'{"number": 1, "status": "loaded", "names": ["\\ud800"]}',
        b'{"number": 1, "status": "loaded", "names": [], "\\u001b[2J\\n": 0}',
        b'{"number": 1, "status": "loaded", "names": [], "\\ud800": 0}',
        b'{"number": 1, "status": "\\u001b[2J", "names": []}',
        b'{"number": 1, "status": "loaded", "names": ["' + b"x" * 10_000 + b'"]}',
        b'{"number": 1, "status": "loaded", "names": [' + b'"x",' * 500 + b'"x"]}',
        b'\xff\xfe{"number": 1, "status": "loaded", "names": []}',
        b"\xef\xbb\xbf\x00",
        b"null",
        b"1",
        b'"loaded"',
        b"",
    ],
    ids=lambda header: header[:40].decode("latin-1"),
)
def test_a_header_of_another_form_is_a_crash(header: bytes) -> None:
    outcome = ask(saying(framed(header)))
    assert isinstance(outcome, Outcome)
    assert outcome.verdict is Verdict.CRASH
    assert "descriptors" in outcome.hint


# Time


def silent(conversation: socket.socket) -> None:
    """Hears the request and says nothing."""
    protocol.receive(conversation, 1 << 30)


def dripping(conversation: socket.socket) -> None:
    """Sends a right reply, a byte every 20 ms."""
    protocol.receive(conversation, 1 << 30)
    for byte in framed(RIGHT, bytes(1000)):
        conversation.sendall(bytes([byte]))
        time.sleep(0.02)


@pytest.mark.parametrize("speak", [silent, dripping], ids=["silent", "dripping"])
def test_a_runner_that_is_too_slow_is_a_timeout_at_the_limit(speak: Speak) -> None:
    start = time.monotonic()
    outcome = ask(speak, stays=True, limit_s=0.3)
    assert isinstance(outcome, Outcome)
    assert outcome.verdict is Verdict.TIMEOUT
    assert time.monotonic() - start >= 0.3


def test_a_request_that_is_never_read_is_a_timeout_at_the_limit() -> None:
    release = threading.Event()
    child = RunnerChild(FakeServer(lambda _: release.wait(5) and None))  # type: ignore[arg-type]
    threading.Timer(0.6, release.set).start()
    start = time.monotonic()
    with pytest.raises(Outcome) as caught:
        child.request({"verb": "load"}, [memoryview(bytes(8 << 20))], 0.3, 0.3)
    assert caught.value.verdict is Verdict.TIMEOUT
    assert 0.3 <= time.monotonic() - start < 0.6 + GRACE_S


def test_a_late_reply_does_not_bring_a_child_back() -> None:
    def late(conversation: socket.socket) -> None:
        protocol.receive(conversation, 1 << 30)
        time.sleep(0.3)
        conversation.sendall(framed(RIGHT))

    child = RunnerChild(FakeServer(late))  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(Outcome) as caught:
            child.request({"verb": "load"}, (), 0.1, 0.1)
        assert caught.value.verdict is Verdict.TIMEOUT


def test_a_process_that_may_not_be_signalled_is_a_timeout_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A submission can become a set-user-id program, which belongs to somebody else."""

    def refused(pid: int, number: int) -> None:
        raise PermissionError(pid, number)

    with subprocess.Popen(["sh", "-c", "sleep 60 & echo; wait"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout
        shell.stdout.readline()
        with monkeypatch.context() as patch:
            patch.setattr(os, "kill", refused)
            outcome = ask(silent, stays=True, limit_s=0.1)
            assert not kill_descendants(shell.pid, patience_s=0.2)
        assert kill_descendants(shell.pid) == 1
    assert isinstance(outcome, Outcome)
    assert outcome.verdict is Verdict.TIMEOUT


# More than one message


@pytest.mark.parametrize("extra", [framed(RIGHT | {"number": 2}), b"\0", framed(RIGHT)], ids=["next", "byte", "again"])
def test_words_that_nobody_asked_for_are_a_crash_at_the_next_request(extra: bytes) -> None:
    child = RunnerChild(FakeServer(saying(framed(RIGHT) + extra), stays=True))  # type: ignore[arg-type]
    child.request({"verb": "load"}, (), 5.0, 5.0)
    with pytest.raises(Outcome, match="not made yet") as caught:
        child.request({"verb": "call"}, (), 5.0, 5.0)
    assert caught.value.verdict is Verdict.CRASH


def test_a_reply_to_an_earlier_request_is_a_crash() -> None:
    def twice_the_same(conversation: socket.socket) -> None:
        for _ in range(2):
            protocol.receive(conversation, 1 << 30)
            conversation.sendall(framed(RIGHT))

    child = RunnerChild(FakeServer(twice_the_same, stays=True))  # type: ignore[arg-type]
    child.request({"verb": "load"}, (), 5.0, 5.0)
    with pytest.raises(Outcome, match="another request") as caught:
        child.request({"verb": "call"}, (), 5.0, 5.0)
    assert caught.value.verdict is Verdict.CRASH


def test_a_process_that_left_its_connection_to_another_is_a_crash_before_the_limit() -> None:
    server = FakeServer(silent, stays=True)
    server.left.set()
    child = RunnerChild(server)  # type: ignore[arg-type]
    start = time.monotonic()
    with pytest.raises(Outcome, match="exit status 0") as caught:
        child.request({"verb": "load"}, (), 20.0, 20.0)
    assert caught.value.verdict is Verdict.CRASH
    assert time.monotonic() - start < 5


def test_a_dead_child_says_the_same_again_and_the_next_one_is_right() -> None:
    child = RunnerChild(FakeServer(saying(b"\0" * 12 + b"junk")))  # type: ignore[arg-type]
    outcomes = []
    for _ in range(2):
        with pytest.raises(Outcome) as caught:
            child.request({"verb": "load"}, (), 5.0, 5.0)
        outcomes.append(caught.value)
    assert outcomes[0] is outcomes[1]
    assert not isinstance(ask(saying(framed(RIGHT))), Outcome)


def test_the_judges_memory_stays_flat_though_outcomes_are_kept() -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    sixteenth = b"\1" * (PAYLOAD_FLOOR_BYTES // 16)
    content = [framed(RIGHT, sixteenth)[:-1], protocol.PREFIX.pack(20, 2**63) + sixteenth]
    kept = [ask(saying(content[0]))]
    gc.collect()
    before = resident_bytes()
    kept += [ask(saying(content[turn % 2])) for turn in range(20)]
    gc.collect()
    assert resident_bytes() - before < 5 * len(sixteenth)
    assert all(isinstance(outcome, Outcome) for outcome in kept)


@many
@given(header=JSON.filter(lambda value: json.dumps(value).find("NaN") < 0 and json.dumps(value).find("Infinity") < 0),
       parts=st.lists(st.binary(max_size=300), max_size=4))  # fmt: skip
def test_what_is_sent_is_what_is_received(header: object, parts: list[bytes]) -> None:
    one, other = socket.socketpair()
    with one, other:
        protocol.send(one, header, [memoryview(part) for part in parts])
        assert protocol.receive(other, 10_000) == (header, b"".join(parts))


# Replies that have the right form, up to the comparison


SHAPES = ((), (3,), (2, 2), (0, 2))
counts = st.integers(0, 2**62 - 1)
words = st.text(max_size=30) | st.sampled_from(["\x1b[2J", "a\nb", "\u202e", "float32", "x" * 1000])
texts = words | st.just("x" * 8000)
places = st.none() | st.fixed_dictionaries({"file": words, "line": counts})
shapes = st.sampled_from(SHAPES).map(list) | st.lists(st.integers(0, 3) | counts, max_size=5)
forms = st.fixed_dictionaries({
    "dtype": st.just("float32") | st.sampled_from([*DTYPES, "complex64", "\x1b[2J"]), "shape": shapes,
    "device": st.sampled_from(["cpu", "cpu", "cuda"]),
})  # fmt: skip
entries = st.one_of(
    forms.map(lambda form: {"kind": "tensor", **form}),
    forms.map(lambda form: {"kind": "large", **form}),
    st.just({"kind": "none"}),
    st.fixed_dictionaries({"kind": st.just("other"), "what": texts}),
)
accesses = st.lists(
    st.fixed_dictionaries({
        "kind": st.sampled_from(["read", "write"]), "program": st.lists(counts, min_size=3, max_size=3),
        "lanes": st.lists(counts, min_size=2, max_size=2), "count": counts, "tensor": st.none() | texts,
        "element": st.none() | st.integers(-(2**61), 2**61), "where": places,
    }),
    max_size=2,
)  # fmt: skip
answers = st.fixed_dictionaries({
    "status": st.just("answer"), "outputs": st.lists(entries, min_size=1, max_size=2) | st.lists(entries, max_size=4),
    "gradients": st.lists(entries, max_size=2), "earlier": st.lists(entries, max_size=2), "accesses": accesses,
})  # fmt: skip
types = texts | st.sampled_from(["SystemExit", "StrayStore", "NotImplementedError", "ValueError"])
raised = st.fixed_dictionaries({
    "status": st.just("raised"), "type": types,
    "out_of_memory": st.booleans(), "missing": st.none() | texts, "message": texts, "where": places, "traceback": texts,
    "accesses": accesses,
})  # fmt: skip
loaded = st.fixed_dictionaries({"status": st.just("loaded"), "names": st.lists(texts, max_size=3)})


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[str, tuple[int, ...], dict[str, Any]]:
    """What a check does, the shape of its input, and a reply that fits, or nearly."""
    kind, shape = draw(st.sampled_from(["call", "again", "backward", "exception"])), draw(st.sampled_from(SHAPES))
    entry = {**FITTING, "shape": list(shape)}
    fitting = {
        "status": "answer", "outputs": [entry], "gradients": [entry] * (kind == "backward"),
        "earlier": [entry] * (kind == "again"), "accesses": draw(accesses),
    }  # fmt: skip
    other, fields = draw(answers), draw(st.sets(st.sampled_from(["outputs", "gradients", "earlier"])))
    return kind, shape, fitting | {field: other[field] for field in fields}


def replying(
    load: dict[str, Any], call: dict[str, Any], content: bytes = bytes(4), spoil: int | None = None, extra: int = 0
) -> Speak:
    """A runner that replies to `load` and to one `call`: tensors filled with `content`, the storages sent back.

    `spoil`: which byte of what it sends back is changed. `extra`: bytes too many, or too few.
    """

    def speak(conversation: socket.socket) -> None:
        for reply in (load, call):
            header, storages = protocol.receive(conversation, 1 << 30)
            assert isinstance(header, dict)
            fields = (reply.get(name, []) for name in ("outputs", "gradients", "earlier"))
            sizes = [_nbytes(entry) for field in fields for entry in field if entry["kind"] == "tensor"]
            answered = b"".join((content * (size // len(content) + 1))[:size] for size in sizes)
            if spoil is not None and storages:
                storages[spoil % len(storages)] ^= 0x55
            payload = bytes(answered + storages) + b"\0" * extra
            conversation.sendall(framed({"number": header["number"], **reply}, payload[: len(payload) + min(extra, 0)]))

    return speak


def _nbytes(entry: dict[str, Any]) -> int:
    size = DTYPES[entry["dtype"]].itemsize if entry["dtype"] in DTYPES else 1
    for length in entry["shape"]:
        size *= length
    return min(size, 1 << 16)


RIGHT_LOAD = {"status": "loaded", "names": ["gelu"]}
POISON, FILL, INFINITY = bytes.fromhex("addec07f"), bytes.fromhex("0000c07f"), bytes.fromhex("0000807f")


FITTING = {"kind": "tensor", "dtype": "float32", "shape": [3], "device": "cpu"}
LARGE = {**FITTING, "kind": "large", "shape": [2**40]}
NONE, OTHER = {"kind": "none"}, {"kind": "other", "what": "builtins.list"}


def fitting(kind: str) -> dict[str, Any]:
    """A reply with the right number of tensors of the right form."""
    return {
        "status": "answer", "outputs": [FITTING], "gradients": [FITTING] * (kind == "backward"),
        "earlier": [FITTING] * (kind == "again"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "change", "verdict"),
    [
        ("call", {}, Verdict.FAIL),
        ("call", {"outputs": []}, Verdict.CRASH),
        ("call", {"earlier": [FITTING]}, Verdict.CRASH),
        ("call", {"gradients": [FITTING]}, Verdict.CRASH),
        ("again", {"earlier": []}, Verdict.CRASH),
        ("backward", {"gradients": []}, Verdict.CRASH),
        ("backward", {"gradients": [FITTING] * 2}, Verdict.CRASH),
        ("call", {"outputs": [LARGE]}, Verdict.FAIL),
        ("again", {"earlier": [LARGE]}, Verdict.FAIL),
        ("backward", {"gradients": [LARGE]}, Verdict.FAIL),
        ("call", {"outputs": [NONE]}, Verdict.FAIL),
        ("backward", {"outputs": [OTHER]}, Verdict.FAIL),
        ("call", {"outputs": [{**FITTING, "device": "cuda"}]}, Verdict.FAIL),
        ("call", {"outputs": [{**FITTING, "dtype": "complex64"}]}, Verdict.CRASH),
        ("call", {"outputs": [{**FITTING, "shape": [0, 2**61, 2**61]}]}, Verdict.FAIL),
        ("call", {"outputs": [FITTING] * 65}, Verdict.CRASH),
    ],
)
def test_a_reply_that_does_not_fit_has_its_verdict(kind: str, change: dict[str, Any], verdict: Verdict) -> None:
    end = hold_a_check(kind, (3,), replying(RIGHT_LOAD, fitting(kind) | change))
    assert end
    assert end.verdict is verdict


@pytest.mark.parametrize("extra", [-1, 1, 4, -12])
def test_tensors_that_do_not_fill_their_message_are_a_crash(extra: int) -> None:
    end = hold_a_check("call", (3,), replying(RIGHT_LOAD, fitting("call"), extra=extra))
    assert end
    assert end.verdict is Verdict.CRASH


@settings(many, max_examples=150)
@given(
    exchange=exchanges(),
    content=st.sampled_from([bytes(4), POISON, FILL, INFINITY]) | st.binary(min_size=1, max_size=16),
    spoil=st.none() | st.integers(0, 1 << 18),
)
def test_an_answer_that_nearly_fits_is_judged_and_never_an_error_of_the_grader(
    exchange: tuple[str, tuple[int, ...], dict[str, Any]], content: bytes, spoil: int | None
) -> None:
    kind, shape, call = exchange
    hold_a_check(kind, shape, replying(RIGHT_LOAD, call, content, spoil))


@settings(many, max_examples=150)
@given(
    kind=st.sampled_from(["call", "again", "backward", "exception"]),
    load=st.just(RIGHT_LOAD) | st.one_of(loaded, raised, answers),
    call=st.one_of(answers, loaded, raised),
)
def test_any_reply_of_a_known_form_is_judged_and_never_an_error_of_the_grader(
    kind: str, load: dict[str, Any], call: dict[str, Any]
) -> None:
    hold_a_check(kind, (3,), replying(load, call, bytes(4), None))


def hold_a_check(kind: str, shape: tuple[int, ...], speak: Speak) -> Outcome | None:
    """Do what a check does with a runner that speaks like this: the end is a pass, or an outcome that is scored."""
    server = FakeServer(speak, stays=True)
    servers = SimpleNamespace(ready=lambda: server, slack=1.0, device="cpu", gpu=None, sandbox=Unconfined())
    process = CheckProcess(servers, Path(__file__).parent, "gelu", 5.0)  # type: ignore[arg-type]
    gelu = Submission(process).gelu
    x = Input(shape).draw(torch.Generator().manual_seed(1))
    process.names[x.untyped_storage().data_ptr()] = "x"
    expected = reference.gelu(x)
    end = None
    try:
        _judge(kind, gelu, x, expected)
    except Outcome as outcome:
        end = outcome
    finally:
        process.close()
    if end:
        assert end.verdict.scored
        assert end.verdict is not Verdict.PASS
        assert_readable(end)
    return end


def _judge(kind: str, gelu: Any, x: torch.Tensor, expected: Expected) -> None:
    """What checks do with a function."""
    if kind == "call":
        assert_matches(gelu(x), expected)
    elif kind == "again":
        new, old = gelu.again(x)
        assert_matches(new, expected, previous=expected)
        assert_matches(old, expected)
    elif kind == "backward":
        for result in gelu.backward(x, gradient=Input(tuple(x.shape)).draw(torch.Generator().manual_seed(2))):
            assert_matches(result, expected)
    else:
        assert_raises(gelu.exception(x), "ValueError", ("float32",), "every dtype")


def test_text_of_the_runner_is_in_no_sentence_about_a_malformed_reply() -> None:
    evil = "\x1b[2JPASS"
    answer = {"number": 1, "status": "answer", "outputs": [], "operators": {evil: {"count": -1, "where": None}}}
    with pytest.raises(protocol.Malformed) as caught:
        replies.parse(answer)
    assert evil not in str(caught.value)
    assert "answer.operators" in str(caught.value)
