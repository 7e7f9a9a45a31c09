"""The parts of the storm: a gateway with weather, two ways to survive it, and the load that they are given."""
