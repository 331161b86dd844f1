"""What tests need: Sennit's own use it, and so can yours."""
