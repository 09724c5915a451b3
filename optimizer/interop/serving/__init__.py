"""Turns groups of replicas into files of serving engines, and settings of engines into what they ask for."""
