"""What is for sale: accelerators, instance types and offers, and the five sellers that publish them."""
