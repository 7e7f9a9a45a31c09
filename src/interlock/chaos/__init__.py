"""Failures that anyone can watch Interlock survive: real servers that die, real networks that are cut, full disks.

Everything here is of the experiment's own making: its servers, its ports on the loopback, its folders. It is bounded in
time and number, and nothing of it is left, however it ends.
"""
