"""Random operations on contexts of every kind, for as long as one likes (`make soak`)."""
