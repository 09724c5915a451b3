"""What the command line and Python programs share: words, files, the clock and prices on file turned into requests."""
