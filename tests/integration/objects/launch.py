"""Becomes the program that it is given, as an ordinary user if asked to.

The program is opened before the rights are dropped and run from the open file, so it may lie where only root can look
(a virtual environment in a private folder does). Run as a script: `launch.py keep|drop PROGRAM [ARGUMENT …]`.
"""

import os
import sys

NOBODY = 65_534


def launch(rights: str, program: str, *arguments: str) -> None:
    opened = os.open(program, os.O_RDONLY)
    if rights == "drop" and os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    os.execve(opened if rights == "drop" else program, [program, *arguments], os.environ)


if __name__ == "__main__":
    launch(*sys.argv[1:])
