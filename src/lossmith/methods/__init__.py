"""The methods of the papers: one paper, one file, read top to bottom."""
