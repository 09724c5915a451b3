"""Turns command lines, settings, logs and tables into what they ask for, whatever file they stand in."""
