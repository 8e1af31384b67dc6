"""Report → what people and programs read."""
