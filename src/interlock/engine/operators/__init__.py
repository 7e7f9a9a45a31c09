"""What operators read about the workflows of an engine, and do to many of them."""
