"""The studio: plots, strips, recorded steps, their pages and GIFs."""
