"""The compiled core: kernels, thread pool, executor."""
