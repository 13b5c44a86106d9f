"""A deploy in waves, recorded in a journal as it proceeds, and resumable from there."""
