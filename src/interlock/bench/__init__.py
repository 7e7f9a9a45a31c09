"""Benchmark experiments with plots, for this machine and this disk.

An experiment is bounded in time and number, works on files of its own, checks its own result, and states what it does
not show. The command line only passes options in and prints the result.
"""
