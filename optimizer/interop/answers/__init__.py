"""Turns what a file asks for into whether it works, what it costs and what would be cheaper."""
