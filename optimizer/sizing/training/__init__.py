"""Memory, time and layouts of training: pure functions of (architecture, accelerator, layout, dtype, batch)."""
