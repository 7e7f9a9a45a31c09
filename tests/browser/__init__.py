"""A package, unlike the other folders of tests, because pytest ends what has the scope of one when it leaves a package.

Playwright has to end there: while it runs, its event loop counts as running in this thread, and no test behind these
could run one of its own.
"""
