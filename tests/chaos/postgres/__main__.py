"""One campaign by hand: `python -m tests.chaos.postgres [SEED [COUNT or NAME …]]` prints the times to recover."""

import sys

from interlock.testing.faults import Processes
from tests.chaos.postgres.campaign import Campaign, own_postgres, script

if __name__ == "__main__":
    seed, *rest = [*sys.argv[1:], "1"][: max(1, len(sys.argv) - 1)]
    names = rest if rest and not rest[0].isdecimal() else script(int(seed), int(rest[0]) if rest else 11)
    with own_postgres() as server, Processes() as processes:
        campaign = Campaign(server, processes, seed=int(seed))
        campaign.run(names)
        print(campaign.report())  # noqa: T201 -- its output is what the program is for.
