"""Dated prices: the snapshot that ships, the cache that refreshes keep, and what can be bought as of a day."""
