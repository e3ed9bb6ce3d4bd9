"""Math that several architectures share, as functions over the graph interface."""
