"""Runs a program under which ptrace(2) knows the oldest form of a processor's floating-point state alone.

User-mode Linux 6.1 asks for the whole state, and then fails on a processor whose state is longer than that of AVX-512, such as
one with AMX. Without an answer it uses the oldest form, of FXSAVE.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_AUDIT_ARCH_X86_64, _SYS_PTRACE, _PTRACE_GETREGSET, _NT_X86_XSTATE = 0xC000003E, 101, 0x4204, 0x202
# Instructions of classic BPF, and what a filter of seccomp(2) returns.
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
# The parts of `struct seccomp_data` that must be equal: the architecture, the call, and its first and third argument.
_CONDITIONS = [(4, _AUDIT_ARCH_X86_64), (0, _SYS_PTRACE), (16, _PTRACE_GETREGSET), (32, _NT_X86_XSTATE)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def _filter() -> bytes:
    instructions = []
    for number, (offset, value) in enumerate(_CONDITIONS):
        left = 2 * (len(_CONDITIONS) - number - 1)
        instructions += [(_LOAD, 0, 0, offset), (_JUMP_IF_EQUAL, 0, left + 1, value)]
    instructions += [(_RETURN, 0, 0, _FAIL | errno.EINVAL), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *each) for each in instructions)


def main() -> None:
    if platform.machine() == "x86_64":
        code = _filter()
        program = _Program(len(code) // 8, code)
        libc = ctypes.CDLL(None, use_errno=True)
        for call in (
            (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
        ):
            if libc.prctl(*call) != 0:
                raise OSError(ctypes.get_errno(), "cannot set a filter of seccomp(2)")
    os.execvp(sys.argv[1], sys.argv[1:])


main()
