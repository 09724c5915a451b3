"""What must run: model architecture, request shapes, service levels."""
