"""The embedded model: llama.cpp in process, its weights and their download."""
