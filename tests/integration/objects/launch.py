"""Becomes the program it is told to run: as an ordinary user if asked to, and never longer-lived than its parent.

The program is opened before the rights are dropped and run from the open file, so it may lie where only root can look
(a virtual environment in a private folder does). Run as a script: `launch.py keep|drop PROGRAM [ARGUMENT …]`.
"""

import ctypes
import os
import signal
import sys

NOBODY = 65_534
PR_SET_PDEATHSIG = 1


def launch(rights: str, program: str, *arguments: str) -> None:
    opened = os.open(program, os.O_RDONLY)
    if rights == "drop" and os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:  # Only on Linux; and only now, because a change of the user takes it back.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.execve(opened if rights == "drop" else program, [program, *arguments], os.environ)


if __name__ == "__main__":
    launch(*sys.argv[1:])
