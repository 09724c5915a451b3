"""Turns the plan's split of requests into the weights of routers."""
