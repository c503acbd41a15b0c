"""Draft models and their floors as text and as JSON; nothing is computed here."""
