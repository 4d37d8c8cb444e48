"""A filter for system calls: what namespaces and missing capabilities do not cover.

Keyrings, watches on files, and System V memory belong to a user number or to the machine, not to a namespace; memory
behind `memfd_create` belongs to nobody whom the watchdog looks at. Queues of messages outlive the processes of a check,
and so would limits and priorities that one of them gives to the sandbox's first process: each may change its own. Of
sessions each may have its own turn at the processor (sched_autogroup), whatever the niceness of what is in it. What is
refused gives `EPERM`, as it does in other containers. The program is classic BPF, as seccomp(2) describes it;
numbers are those of the kernel's `unistd.h`.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct
from dataclasses import dataclass

from grader.sandbox.levels import CannotStart

F_SETLEASE, F_NOTIFY = 1024, 1026  # fcntl(2): a lease makes others wait who open the file to write
ITS_OWN: dict[str, dict[int, int]] = {  # arguments by their place, which say that a process changes itself
    "prlimit64": {0: 0}, "sched_setparam": {0: 0}, "sched_setscheduler": {0: 0}, "sched_setaffinity": {0: 0},
    "sched_setattr": {0: 0}, "setpriority": {0: 0, 1: 0}, "ioprio_set": {0: 1, 1: 0},
}  # fmt: skip
FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)  # vsock and others know no namespace


@dataclass(frozen=True)
class Architecture:
    """A processor's system calls: its number for auditing, and the numbers of those that matter here."""

    audit: int
    calls: dict[str, int]


ARCHITECTURES = {
    "x86_64": Architecture(0xC000003E, {
        "add_key": 248, "request_key": 249, "keyctl": 250,
        "inotify_init": 253, "inotify_init1": 294, "fanotify_init": 300,
        "shmget": 29, "shmat": 30, "semget": 64, "msgget": 68, "memfd_create": 319, "memfd_secret": 447,
        "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
        "userfaultfd": 323, "bpf": 321, "perf_event_open": 298,
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "open_by_handle_at": 304,
        "mq_open": 240, "mq_unlink": 241, "setsid": 112,
        "socket": 41, "fcntl": 72,
        "prlimit64": 302, "sched_setparam": 142, "sched_setscheduler": 144, "sched_setaffinity": 203,
        "sched_setattr": 314, "setpriority": 141, "ioprio_set": 251,
    }),
    "aarch64": Architecture(0xC00000B7, {
        "add_key": 217, "request_key": 218, "keyctl": 219,
        "inotify_init1": 26, "fanotify_init": 262,
        "shmget": 194, "shmat": 196, "semget": 190, "msgget": 186, "memfd_create": 279, "memfd_secret": 447,
        "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
        "userfaultfd": 282, "bpf": 280, "perf_event_open": 241,
        "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "open_by_handle_at": 265,
        "mq_open": 180, "mq_unlink": 181, "setsid": 157,
        "socket": 198, "fcntl": 25,
        "prlimit64": 261, "sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122,
        "sched_setattr": 274, "setpriority": 140, "ioprio_set": 30,
    }),
}  # fmt: skip

# linux/bpf_common.h and linux/seccomp.h
LOAD, IS_EQUAL, IS_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, ERROR = 0x7FFF0000, 0x00050000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, (16, 24)  # offsets in struct seccomp_data
OTHER_ABI = 0x40000000  # x86-64 programs with 32-bit pointers have their own numbers from here on


def program() -> bytes:
    """The filter for this machine's processor. Raises `CannotStart` for one that is not in the table."""
    if (machine := platform.machine()) not in ARCHITECTURES:
        raise CannotStart(f"there is no filter of system calls for {machine}")
    architecture = ARCHITECTURES[machine]
    refuse = _step(RETURN, ERROR | errno.EPERM)
    steps = [_step(LOAD, ARCHITECTURE), _step(IS_EQUAL, architecture.audit, skip_if=1), refuse]
    steps += [_step(LOAD, NUMBER), _step(IS_AT_LEAST, OTHER_ABI, skip_unless=1), refuse]
    for name, number in architecture.calls.items():
        block = [refuse]
        if name == "socket":
            block = [_step(LOAD, ARGUMENTS[0])]
            for family in FAMILIES:
                block += [_step(IS_EQUAL, family, skip_unless=1), _step(RETURN, ALLOW)]
            block.append(_step(RETURN, ERROR | errno.EAFNOSUPPORT))
        elif name == "fcntl":
            block = [_step(LOAD, ARGUMENTS[1])]
            for command in (F_SETLEASE, F_NOTIFY):
                block += [_step(IS_EQUAL, command, skip_unless=1), refuse]
            block.append(_step(RETURN, ALLOW))
        elif name in ITS_OWN:
            block = []
            for place, value in ITS_OWN[name].items():
                block += [_step(LOAD, ARGUMENTS[place]), _step(IS_EQUAL, value, skip_if=1), refuse]
            block.append(_step(RETURN, ALLOW))
        steps += [_step(IS_EQUAL, number, skip_unless=len(block)), *block]
    return b"".join([*steps, _step(RETURN, ALLOW)])


def _step(code: int, operand: int, skip_if: int = 0, skip_unless: int = 0) -> bytes:
    """One instruction (struct sock_filter); a comparison skips so many of the next ones."""
    return struct.pack("=HBBI", code, skip_if, skip_unless, operand)
