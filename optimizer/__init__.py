"""Turns an LLM workload and dated offers into the cheapest plan that meets it, with the proof and the reasons."""
