"""Turns an architecture on an accelerator into memory, time and capacity."""
