"""The physical form of a rig: what it is, what it costs, and what a change of it would do."""
