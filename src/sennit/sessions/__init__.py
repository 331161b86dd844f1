"""The braid itself: sessions, branches, the history they share, and who may use what."""
