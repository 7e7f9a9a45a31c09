"""The PostgreSQL dialect that a lane understands: parsed, checked, and translated to SQLite."""
