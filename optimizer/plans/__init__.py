"""What was chosen and why: plans, alternatives and explanations from a solved program."""
