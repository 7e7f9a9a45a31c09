"""Settings every test shares: how hard Hypothesis looks, and whether it looks the same way each time.

`default` explores anew on every run and remembers its failures; `ci` is deterministic, so that a red run is red
again; `proof` tries twenty times as many examples. Choose with HYPOTHESIS_PROFILE. A test that sets its own
`max_examples` opts out of the profiles: prefer none.
"""

import os

from hypothesis import HealthCheck, settings

EXAMPLES = 100
PROOF_FACTOR = 20

# No deadline anywhere: how long one example takes says something about the machine, not about the code.
settings.register_profile("default", max_examples=EXAMPLES, deadline=None)
settings.register_profile("ci", max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, print_blob=True)
settings.register_profile(
    "proof",
    max_examples=EXAMPLES * PROOF_FACTOR,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))
