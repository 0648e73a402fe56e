"""The methods of the papers: one paper, one file (or one package, where it takes several), read top to bottom."""
