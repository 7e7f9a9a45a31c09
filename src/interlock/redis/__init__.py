"""Redis coordination of a cluster, optional beside the store: leases, limits and breakers."""
