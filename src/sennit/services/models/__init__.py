"""Language models: requests, replies, parameters, usage, and wrappers around them."""
