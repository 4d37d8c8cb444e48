"""The doctor on made-up machines and on this one: a finding appears on its machine and not on the next."""

import ctypes
import io
import platform
import subprocess
import sys
import sysconfig
import tomllib
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from grader import doctor
from grader.doctor import Finding, Gpu, Machine, can_run_kernels, confinement, examine, render, uses_gpu
from grader.sandbox.obstacles import Obstacle

ROOT = Path(__file__).parents[2]

H100 = Gpu("NVIDIA H100 80GB HBM3", (9, 0), shared_bytes=232_448, memory_bytes=85_000_000_000)
A100 = Gpu("NVIDIA A100-SXM4-40GB", (8, 0), shared_bytes=166_912, memory_bytes=42_000_000_000)
RTX4090 = Gpu("NVIDIA GeForce RTX 4090", (8, 9), shared_bytes=101_376, memory_bytes=25_000_000_000)
T4 = Gpu("Tesla T4", (7, 5), shared_bytes=65_536, memory_bytes=16_000_000_000)
V100 = Gpu("Tesla V100-SXM2-16GB", (7, 0), shared_bytes=98_304, memory_bytes=17_000_000_000)

SERVER = Machine(
    system="Linux",
    architecture="x86_64",
    python="3.12.3",
    glibc="2.39",
    wsl=False,
    torch="2.13.0",
    torch_cuda="13.0",
    triton="3.7.1",
    numpy="2.4.6",
    nvidia_driver=True,
    driver_cuda="13.0",
    gpus=(H100,),
    compiler="/usr/bin/gcc",
    python_headers=True,
)
LAPTOP = replace(
    SERVER, torch="2.13.0+cpu", torch_cuda=None, nvidia_driver=False, driver_cuda=None, gpus=(), compiler=None
)
MAC = replace(LAPTOP, system="Darwin", architecture="arm64", glibc=None, torch="2.13.0", triton=None)
WINDOWS = replace(SERVER, system="Windows", architecture="AMD64", glibc=None, torch_cuda=None, triton=None)
OLD_PAIR = replace(LAPTOP, torch="2.11.0", triton="3.6.0", numpy="2.3.5")

# machine with the finding, the nearest machine without it, level, words of the sentence, words of the remedy
FINDINGS = {
    "macOS": (MAC, LAPTOP, "problem", "no Triton for macOS", "Docker"),
    "Windows": (WINDOWS, replace(SERVER, wsl=True), "problem", "on Windows", "WSL"),
    "another system": (
        replace(LAPTOP, system="FreeBSD"),
        LAPTOP,
        "problem",
        "no Triton for FreeBSD",
        "Colab",
    ),
    "another processor": (
        replace(LAPTOP, architecture="riscv64", triton=None),
        replace(LAPTOP, architecture="aarch64", triton=None),
        "problem",
        "no Triton wheel for riscv64",
        "Docker",
    ),
    "a libc that is not glibc": (
        replace(LAPTOP, glibc=None, triton=None),
        replace(LAPTOP, triton=None),
        "problem",
        "with no glibc",
        "Docker",
    ),
    "a glibc older than the wheels'": (
        replace(LAPTOP, glibc="2.27", triton=None),
        replace(LAPTOP, glibc="2.28", triton=None),
        "problem",
        "no Triton wheel for x86_64 with glibc 2.",
        "Docker",
    ),
    "an old Python": (
        replace(LAPTOP, python="3.10.14"),
        replace(LAPTOP, python="3.11.0"),
        "problem",
        "is too old: the grader needs 3.11",
        "uv sync",
    ),
    "no torch": (replace(LAPTOP, torch=None), LAPTOP, "problem", "torch is not installed", "uv sync"),
    "no Triton": (replace(LAPTOP, triton=None), LAPTOP, "problem", "Triton is not installed", "uv sync"),
    "no numpy": (replace(LAPTOP, numpy=None), LAPTOP, "problem", "numpy is not installed", "uv sync"),
    "numpy too new for triton 3.6": (
        replace(OLD_PAIR, numpy="2.4.0"),
        OLD_PAIR,
        "problem",
        "numpy 2.4.0 with triton 3.6.0 breaks every loop",
        "uv sync",
    ),
    "numpy too new for triton 3.6, on a GPU": (
        replace(SERVER, torch="2.11.0", triton="3.6.0"),
        SERVER,
        "note",
        "breaks every loop on the CPU",
        "uv sync",
    ),
    "the pinned pair": (LAPTOP, OLD_PAIR, "ok", "torch 2.13.0+cpu with triton 3.7.1: a tested pair", ""),
    "the older pair": (OLD_PAIR, LAPTOP, "ok", "torch 2.11.0 with triton 3.6.0: a tested pair", ""),
    "a pair that is mixed": (
        replace(LAPTOP, triton="3.6.0"),
        LAPTOP,
        "note",
        "torch 2.13.0+cpu with triton 3.6.0: not a tested pair",
        "uv sync",
    ),
    "a newer Triton": (
        replace(LAPTOP, triton="3.8.0"),
        LAPTOP,
        "note",
        "triton 3.8.0: newer than the tested 3.7.1",
        "uv sync",
    ),
    "torch alone": (MAC, LAPTOP, "ok", "torch 2.13.0.", ""),
    "a CPU wheel beside a GPU": (
        replace(SERVER, torch="2.13.0+cpu", torch_cuda=None),
        SERVER,
        "problem",
        "is a CPU wheel",
        "uv sync, or: pip install --force-reinstall torch==2.13.0",
    ),
    "a driver of the CUDA before": (
        replace(SERVER, driver_cuda="12.8"),
        SERVER,
        "problem",
        "needs a driver with CUDA 13.0 or newer",
        'driver 580 or newer, or stay on the CPU: CUDA_VISIBLE_DEVICES=""',
    ),
    "a driver below Windows": (
        replace(SERVER, driver_cuda="12.8", wsl=True),
        replace(SERVER, wsl=True),
        "problem",
        "needs a driver with CUDA 13.0 or newer",
        "driver 580 or newer in Windows",
    ),
    "a card that CUDA 13 dropped": (
        replace(SERVER, gpus=(V100,)),
        replace(SERVER, gpus=(T4,)),
        "problem",
        "needs capability 7.5",
        "Use a newer GPU",
    ),
    "no bfloat16": (
        replace(SERVER, gpus=(T4,)),
        replace(SERVER, gpus=(A100,)),
        "note",
        "has no bfloat16 tensor cores",
        "float16 covers the same code",
    ),
    "little shared memory": (
        replace(SERVER, gpus=(RTX4090,)),
        replace(SERVER, gpus=(A100,)),
        "note",
        "large tiles do not fit",
        "num_stages",
    ),
    "no C compiler": (
        replace(SERVER, compiler=None),
        LAPTOP,
        "problem",
        "There is no C compiler",
        "sudo apt install gcc",
    ),
    "no Python.h": (
        replace(SERVER, python_headers=False),
        replace(LAPTOP, python_headers=False),
        "problem",
        "Python.h is missing",
        "python3-dev",
    ),
    "no GPU": (
        LAPTOP,
        SERVER,
        "note",
        "There is no GPU, so kernels are interpreted",
        "on a GPU before you hand in",
    ),
    "a driver without a GPU": (
        replace(SERVER, gpus=()),
        LAPTOP,
        "note",
        "There is no GPU",
        "does CUDA_VISIBLE_DEVICES hide it?",
    ),
    "a GPU that is not used": (
        replace(SERVER, driver_cuda="12.8"),
        SERVER,
        "note",
        "The GPU cannot be used, so kernels are interpreted",
        "",
    ),
    "a GPU": (SERVER, LAPTOP, "ok", "GPU 0: NVIDIA H100 80GB HBM3 (capability 9.0), 227 KB", ""),
    "kernels on the GPU": (SERVER, LAPTOP, "ok", "Kernels run on the GPU", ""),
    "WSL": (replace(LAPTOP, wsl=True), LAPTOP, "ok", "Linux under WSL on x86_64, Python 3.12.3", ""),
}
DETAILS = {
    "both versions of CUDA": (
        replace(SERVER, driver_cuda="12.8"),
        "(CUDA 13.0) needs",
        "this one has CUDA 12.8",
    ),
    "the card that is too old": (
        replace(SERVER, gpus=(V100,)),
        "V100-SXM2-16GB (capability 7.0)",
        "CUDA 13.0",
    ),
    "the card without bfloat16": (
        replace(SERVER, gpus=(T4,)),
        "Tesla T4 (capability 7.5) has no bfloat16",
        "",
    ),
    "how little shared memory": (replace(SERVER, gpus=(RTX4090,)), "RTX 4090 has 99 KB", "an H100: 227"),
    "the CPU wheel": (
        replace(SERVER, torch="2.13.0+cpu", torch_cuda=None),
        "torch 2.13.0+cpu is a CPU wheel",
        "",
    ),
    "the glibc that is too old": (replace(LAPTOP, glibc="2.27", triton=None), "with glibc 2.27", ""),
    "the Python that is too old": (replace(LAPTOP, python="3.10.14"), "Python 3.10.14 is too old", ""),
}
MACHINES = [machine for row in FINDINGS.values() for machine in row[:2]]


def findings_with(machine: Machine, words: str) -> list[Finding]:
    return [finding for finding in examine(machine) if words in finding.sentence]


@pytest.mark.parametrize(("machine", "_neighbour", "level", "words", "remedy"), FINDINGS.values(), ids=FINDINGS)
def test_a_finding_appears_once_on_its_machine_with_its_remedy(machine, _neighbour, level, words, remedy):
    (finding,) = findings_with(machine, words)
    assert finding.level == level
    assert remedy in finding.remedy


@pytest.mark.parametrize(("_machine", "neighbour", "level", "words", "remedy"), FINDINGS.values(), ids=FINDINGS)
def test_a_finding_does_not_appear_on_the_neighbouring_machine(_machine, neighbour, level, words, remedy):
    assert [finding for finding in findings_with(neighbour, words) if remedy in finding.remedy] == []


@pytest.mark.parametrize(("machine", "first", "second"), DETAILS.values(), ids=DETAILS)
def test_a_sentence_names_what_was_found(machine, first, second):
    assert [finding for finding in findings_with(machine, first) if second in finding.sentence]


def test_every_sentence_is_one_line_of_ascii_and_every_problem_has_a_remedy():
    for finding in [finding for machine in MACHINES for finding in examine(machine)]:
        assert (finding.sentence + finding.remedy).isascii()
        assert "\n" not in finding.sentence + finding.remedy
        assert finding.sentence.endswith(".")
        assert finding.remedy or finding.level == "ok"


@pytest.mark.parametrize("machine", [SERVER, replace(SERVER, gpus=(A100,)), replace(SERVER, wsl=True)])
def test_a_good_gpu_machine_has_nothing_but_ok(machine):
    assert {finding.level for finding in examine(machine)} == {"ok"}


def test_a_laptop_without_a_gpu_has_no_problem_and_names_all_that_it_cannot_show():
    assert "problem" not in {finding.level for finding in examine(LAPTOP)}
    (finding,) = findings_with(LAPTOP, "interpreted")
    for limit in ("bfloat16", "TF32", "races", "speed", "largest sizes"):
        assert limit in finding.sentence


@pytest.mark.parametrize("machine", [MAC, WINDOWS, replace(MAC, torch=None)])
def test_where_there_is_no_triton_nobody_is_told_to_install_it_or_that_kernels_are_checked(machine):
    assert findings_with(machine, "Triton is not installed") == []
    assert findings_with(machine, "interpreted") == []


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (MAC, "no Triton for macOS"),
        (WINDOWS, "on Windows"),
        (replace(LAPTOP, torch=None), "torch is not installed"),
        (replace(LAPTOP, triton=None), "Triton is not installed"),
        (replace(LAPTOP, numpy=None), "numpy is not installed"),
        (replace(OLD_PAIR, numpy="2.4.0"), "breaks every loop"),
        (replace(SERVER, compiler=None), "no C compiler"),
    ],
)
def test_the_reason_why_no_kernel_runs_is_one_of_the_problems_found(machine, words):
    reason = can_run_kernels(machine)
    assert reason is not None
    assert words in reason
    assert [finding.level for finding in examine(machine) if finding.sentence == reason] == ["problem"]


@pytest.mark.parametrize(
    "machine",
    [
        LAPTOP,
        SERVER,
        OLD_PAIR,
        replace(SERVER, torch="2.11.0", triton="3.6.0"),  # numpy 2.4 stops the interpreter only
        replace(SERVER, driver_cuda="12.8", compiler=None),  # interpreted, so no compiler is called
        replace(SERVER, torch_cuda=None),
    ],
)
def test_kernels_run_where_nothing_stops_them_even_if_the_gpu_is_of_no_use(machine):
    assert can_run_kernels(machine) is None


@pytest.mark.parametrize("driver_cuda", ["13.0", "13.2", "14.0"])
def test_a_driver_serves_its_own_and_older_major_versions_of_cuda(driver_cuda):
    assert uses_gpu(replace(SERVER, driver_cuda=driver_cuda))
    assert uses_gpu(replace(SERVER, driver_cuda=driver_cuda, torch_cuda="12.6"))


def test_a_driver_serves_newer_minor_versions_of_its_own_cuda():
    assert uses_gpu(replace(SERVER, driver_cuda="12.2", torch_cuda="12.6"))


def test_a_card_that_cuda_13_dropped_is_used_by_a_torch_of_cuda_12():
    assert uses_gpu(replace(SERVER, torch_cuda="12.6", gpus=(V100,)))


@pytest.mark.parametrize(
    "change",
    [
        {"gpus": ()},
        {"torch": None, "torch_cuda": None},
        {"torch_cuda": None},
        {"driver_cuda": "12.8"},
        {"gpus": (V100, H100)},
        {"system": "Windows"},
    ],
    ids=str,
)
def test_a_gpu_is_not_used_without_a_card_a_torch_or_a_driver_for_it(change):
    assert not uses_gpu(replace(SERVER, **change))


def test_every_gpu_is_listed_and_the_first_one_decides():
    machine = replace(SERVER, gpus=(H100, T4))
    assert [finding.sentence[:6] for finding in findings_with(machine, "GPU ")[:2]] == ["GPU 0:", "GPU 1:"]
    assert findings_with(machine, "bfloat16") == []


def test_the_pins_are_those_of_the_project():
    pinned = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"torch=={doctor.TORCH}" in pinned
    assert any(pin.startswith(f"triton=={doctor.TRITON};") for pin in pinned)


def rendered(findings: list[Finding], encoding: str = "utf-8", **options: Any) -> str:
    stream = io.BytesIO()
    console = Console(file=io.TextIOWrapper(stream, encoding=encoding, write_through=True), **options)
    render(findings, console)
    return stream.getvalue().decode(encoding)


def test_findings_fit_80_columns_of_plain_ascii_in_a_pipe():
    text = "".join(rendered(examine(machine), encoding="ascii", width=80) for machine in MACHINES)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_every_finding_and_remedy_is_printed_whole():
    machine = replace(SERVER, driver_cuda="12.8", gpus=(T4,))
    words = rendered(examine(machine), width=80).split()
    expected = [word for f in examine(machine) for word in (f.level, *f.sentence.split(), "->", *f.remedy.split())]
    assert [word for word in words if word != "->"] == [word for word in expected if word != "->"]


def test_a_terminal_gets_colours():
    assert "\x1b[" in rendered(examine(SERVER), force_terminal=True, color_system="standard", width=80)


def test_brackets_in_a_name_are_not_taken_for_markup():
    assert "[bold]X" in rendered(examine(replace(SERVER, gpus=(replace(H100, name="[bold]X"),))), width=80)


def test_this_machine_is_described_as_the_packages_describe_themselves():
    machine = Machine.here()
    assert (machine.torch, machine.numpy) == (metadata.version("torch"), metadata.version("numpy"))
    assert machine.python == ".".join(map(str, sys.version_info[:3]))
    code = "import torch; print(torch.version.cuda)"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert str(machine.torch_cuda) == printed.strip()


def test_neither_torch_nor_triton_nor_numpy_is_imported():
    code = """if True:
        import io, sys
        from rich.console import Console
        from grader.doctor import Machine, can_run_kernels, examine, render
        machine = Machine.here()
        can_run_kernels(machine)
        render(examine(machine), Console(file=io.StringIO()))
        print({"torch", "triton", "numpy"} & set(sys.modules))"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


def no_library(name: str) -> ctypes.CDLL:
    raise OSError(f"{name}: cannot open shared object file")


def test_a_bare_machine_is_described_without_an_error(monkeypatch, tmp_path):
    def no_package(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", no_package)
    monkeypatch.setattr(metadata, "distribution", no_package)
    monkeypatch.setattr(ctypes, "CDLL", no_library)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    machine = Machine.here()
    assert (machine.torch, machine.torch_cuda, machine.triton, machine.numpy) == (None,) * 4
    assert (machine.nvidia_driver, machine.driver_cuda, machine.gpus, machine.compiler) == (
        False,
        None,
        (),
        None,
    )


def test_the_compiler_is_cc_alone_where_that_is_set(monkeypatch, tmp_path):
    for name in ("gcc", "mycc"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert Machine.here().compiler == str(tmp_path / "gcc")
    monkeypatch.setenv("CC", "mycc")
    assert Machine.here().compiler == str(tmp_path / "mycc")
    monkeypatch.setenv("CC", "gone")
    assert Machine.here().compiler is None


@pytest.mark.parametrize(
    ("line", "cuda"),
    [
        ("cuda: Optional[str] = '13.0'", "13.0"),
        ("cuda = '12.6'", "12.6"),
        ("cuda: Optional[str] = None", None),
        ("hip: Optional[str] = '6.4'", None),
    ],
)
def test_the_cuda_of_torch_is_read_from_its_version_file(monkeypatch, tmp_path, line, cuda):
    described = tmp_path / "torch-2.13.0+x.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+x\n")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise AssertionError('imported')")
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2.13.0+x'\n{line}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    machine = Machine.here()
    assert (machine.torch, machine.torch_cuda) == ("2.13.0+x", cuda)


@pytest.mark.parametrize(
    ("release", "wsl"), [("5.15.153.1-microsoft-standard-WSL2", True), ("6.8.0-45-generic", False)]
)
def test_wsl_is_known_by_its_kernel(monkeypatch, release, wsl):
    monkeypatch.setattr(platform, "release", lambda: release)
    assert Machine.here().wsl is wsl


@pytest.mark.parametrize(("libc", "glibc"), [(("glibc", "2.36"), "2.36"), (("musl", "1.2.5"), None), (("", ""), None)])
def test_only_glibc_counts_as_glibc(monkeypatch, libc, glibc):
    monkeypatch.setattr(platform, "libc_ver", lambda: libc)
    assert Machine.here().glibc == glibc


def test_headers_are_there_when_python_h_lies_in_the_include_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(sysconfig, "get_paths", lambda scheme: {"include": str(tmp_path)})
    assert not Machine.here().python_headers
    (tmp_path / "Python.h").touch()
    assert Machine.here().python_headers


class Driver(SimpleNamespace):
    """Stands in for libcuda: two H100s, a driver for CUDA 12.8, attributes numbered as in cuda.h."""

    def __init__(self, error: int = 0) -> None:
        super().__init__(error=error)

    def cuInit(self, flags: int) -> int:
        return self.error

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 12080
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def cuDeviceGet(self, device: Any, index: int) -> int:
        device._obj.value = 40 + index
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> int:
        name.value = f"Card \N{REGISTERED SIGN} {device.value}".encode()
        return 0

    def cuDeviceTotalMem_v2(self, memory: Any, device: Any) -> int:
        memory._obj.value = 85_000_000_000
        return 0

    def cuDeviceGetUuid(self, identity: Any, device: Any) -> int:
        identity[:] = range(device.value, device.value + 16)
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:
        value._obj.value = {75: 9, 76: 0, 97: 232_448}[attribute]
        return 0


def test_gpus_are_described_as_the_driver_does(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    machine = Machine.here()
    assert (machine.nvidia_driver, machine.driver_cuda) == (True, "12.8")
    assert [gpu.name.isascii() and gpu.name[-2:] for gpu in machine.gpus] == ["40", "41"]
    assert {replace(gpu, name=H100.name, uuid=H100.uuid) for gpu in machine.gpus} == {H100}
    assert [gpu.uuid for gpu in machine.gpus] == [
        "GPU-28292a2b-2c2d-2e2f-3031-323334353637", "GPU-292a2b2c-2d2e-2f30-3132-333435363738",
    ]  # fmt: skip


def test_a_driver_that_does_not_start_shows_its_version_and_no_gpu(monkeypatch):
    no_device = 100  # CUDA_ERROR_NO_DEVICE, also when CUDA_VISIBLE_DEVICES is empty
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(no_device))
    machine = Machine.here()
    assert (machine.nvidia_driver, machine.driver_cuda, machine.gpus) == (True, "12.8", ())


def test_a_library_without_the_drivers_functions_is_no_driver(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    assert Machine.here().nvidia_driver is False


def test_what_keeps_submissions_from_being_confined_is_a_note_with_the_remedy():
    assert confinement(None).level == "ok"
    finding = confinement(Obstacle("bubblewrap is not installed", "sudo apt install bubblewrap"))
    assert (finding.level, finding.remedy) == ("note", "sudo apt install bubblewrap")
    assert "Grading refuses" in finding.sentence
