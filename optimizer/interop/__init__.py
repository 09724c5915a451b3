"""Turns plans into other tools' files, and other tools' files into what they need and cost; one module per target."""
