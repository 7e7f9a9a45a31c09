"""Move of a home's workflows to another store while they run."""
