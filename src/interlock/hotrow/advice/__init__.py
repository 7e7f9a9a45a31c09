"""Where a workload should live: evidence, the placement rule, its words, and what keeps noise from deciding."""
