"""Turns plans into files of orchestrators and infrastructure, and such files into what they ask for."""
