"""Settings: `common` (every field and its default), `models` (the tables)."""
