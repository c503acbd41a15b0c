"""Results as text, tables and JSON; nothing is computed here."""
