"""Records: the values that stores read and write."""
