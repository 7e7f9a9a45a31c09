"""Experiments that anyone can run, with a plot: what lanes do on this machine and this disk.

An experiment is bounded in time and number, works on files of its own, checks its own result, and says what it shows
and what it does not. The command line only passes options in and prints what comes out.
"""
