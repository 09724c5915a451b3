"""Turns training jobs into files of training software."""
