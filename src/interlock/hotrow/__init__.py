"""Hot rows: counters, stock, the contention table, and advice on where a workload should live."""
