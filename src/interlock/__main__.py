"""`python -m interlock` is the same program as `interlock`."""

from interlock.cli import main

raise SystemExit(main())
