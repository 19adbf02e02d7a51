"""Facts about programs: arithmetic, types, regions, well-formedness, pattern kinds."""
