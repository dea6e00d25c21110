"""The studio: plots, tinted text, recorded steps, their pages and GIFs."""
