"""Move databases and workflows between engines while they are used."""
