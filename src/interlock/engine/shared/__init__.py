"""The parts of an engine that differ on a store which other processes write to as well."""
