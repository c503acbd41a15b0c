"""Points: measurements as one table, matched, checked, and in systems."""
