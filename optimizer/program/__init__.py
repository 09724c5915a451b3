"""The integer program: offers, candidates and demand as numbers, and the cheapest counts with their proof."""
