"""What an engine does differently on a store that other processes write to as well."""
