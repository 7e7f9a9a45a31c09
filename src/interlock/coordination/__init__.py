"""What the processes of a cluster agree on beside the store: leases, limits and breakers in Redis, as an option."""
